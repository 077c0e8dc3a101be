"""One batch on its way: what it brings (`columns`), who gets what of it (`uses`, `trainer_state`), what functions recorded
(`records`), and when failures are too many (`failures`)."""
