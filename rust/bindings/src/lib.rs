//! `guerdon._native`: the engine as Python sees it.
