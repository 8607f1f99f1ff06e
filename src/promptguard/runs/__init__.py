"""What validation, scans, probes and the dashboard share: journal, intervals, report, rendering."""
