// Theme switch, relative times, shortcuts of the review; all else is driven by the server.
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

  // --- review: one event names the turns and what was said of them -------------------------
  function decide(verdict, turns) {
    const names = turns.map((each) => each.dataset.turn);
    const area = document.querySelector("[data-review]");
    if (area && names.length) area.dispatchEvent(new CustomEvent("decide", { detail: { verdict, names } }));
  }

  function current() {
    return document.activeElement && document.activeElement.closest("[data-turn]");
  }

  function move(step) {
    const turns = [...document.querySelectorAll("[data-turn]")];
    const at = turns.indexOf(current());
    const next = turns[at < 0 ? 0 : Math.min(turns.length - 1, Math.max(0, at + step))];
    if (next) next.focus();
  }

  document.addEventListener("click", (event) => {
    const single = event.target.closest("[data-decide]");
    const bulk = event.target.closest("[data-decide-selected]");
    if (single) decide(single.dataset.decide, [single.closest("[data-turn]")]);
    if (bulk) {
      const chosen = [...document.querySelectorAll("[data-select]:checked")];
      decide(bulk.dataset.decideSelected, chosen.map((each) => each.closest("[data-turn]")));
    }
    const withdrawn = event.target.closest("[data-withdraw]");
    if (withdrawn) {
      const detail = Number(withdrawn.dataset.withdraw);
      withdrawn.closest("section").dispatchEvent(new CustomEvent("withdraw", { detail }));
    }
    if (event.target.matches("[data-select-all]")) {
      for (const each of document.querySelectorAll("[data-select]")) each.checked = event.target.checked;
    }
  });

  const keys = {
    j: () => move(1),
    k: () => move(-1),
    a: (turn) => turn && decide("attack", [turn]),
    f: (turn) => turn && decide("false_alarm", [turn]),
    x: (turn) => turn && turn.querySelector("[data-select]")?.click(),
    o: (turn) => turn && turn.querySelector("a")?.click(),
  };

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input:not([type=checkbox]), textarea, select");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!document.querySelector("[data-turn]") || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key](current());
  });

  // A choice in the filters is applied at once; the form's button is for the text fields.
  document.addEventListener("change", (event) => {
    const form = event.target.closest("[data-filters]");
    if (form && event.target.matches("select")) form.requestSubmit();
  });

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
