"""What a run leaves behind and shows while it goes: journal, report, live state, dump, timeline."""
