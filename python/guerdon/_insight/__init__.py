"""Files and live views of a run: journal, report, live state, dump, timeline."""
