// Theme switch and relative times; everything else on the pages is driven by the server.
(() => {
  const root = document.documentElement;

  function wear(theme) {
    root.dataset.theme = theme;
    if (window.Quasar && window.Quasar.Dark) window.Quasar.Dark.set(theme === "dark");
    for (const each of document.querySelectorAll("[data-theme-switch]")) {
      each.textContent = theme === "dark" ? "Light theme" : "Dark theme";
      each.setAttribute("aria-pressed", String(theme === "light"));
    }
  }

  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-switch]")) return;
    const theme = root.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("promptguard-theme", theme);
    } catch (_) {
      // Without storage the choice lasts as long as the page.
    }
    wear(theme);
  });

  function ago(seconds) {
    if (seconds < 5) return "now";
    if (seconds < 60) return `${Math.floor(seconds)} s ago`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
    return `${Math.floor(seconds / 86400)} d ago`;
  }

  function refresh() {
    for (const each of document.querySelectorAll("time[data-ago]")) {
      const said = ago(Math.max(0, (Date.now() - Date.parse(each.dateTime)) / 1000));
      if (each.textContent !== said) each.textContent = said;
    }
  }

  let isDue = false;
  new MutationObserver(() => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      refresh();
      if (document.querySelector("[data-theme-switch]:not([data-worn])")) {
        for (const each of document.querySelectorAll("[data-theme-switch]")) each.dataset.worn = "";
        wear(root.dataset.theme);
      }
    });
  }).observe(root, { childList: true, subtree: true });
  setInterval(refresh, 5000);
})();
