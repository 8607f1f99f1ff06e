"""Names that nothing in the repository calls, each with its reason; see tools/dead_code.py."""

# click calls these.
list_commands
get_command
get_completion_args
format_completion

# Part of the report that `cascade_report` gives to users of the library.
share_passed_on

# What the tests of shipped data ask: bundled scenarios, examples of the rubric's patterns.
is_demanding
is_missed
matched_wordings
