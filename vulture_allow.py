"""Names that a framework, a template or a user of the library calls; see tools/dead_code.py."""

# click calls these.
list_commands
get_command

# What users of the library call, as the documentation shows.
process_turn
per_model
cascade_report
share_passed_on
recording_line
ManualClock
ScriptedProvider

# data/templates/validation.html calls these.
roc_plot
det_plot
reliability_plot
histogram
trajectories
attribution_plot

# What the tests of shipped data ask: bundled scenarios, examples of the rubric's patterns.
is_demanding
is_missed
matched_wordings
