//! Limits of one function's calls in their worker, and the part of the environment that they get.
//! The values of environment variables are never shown.

use std::fmt;

use serde::Deserialize;

/// The resource limits of one function. The default is none.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceLimits {
    /// Bytes of private memory beyond those of the worker after its functions were loaded. Enforced
    /// by the worker.
    pub memory_limit: Option<u64>,
    /// Bytes that one call may print. Enforced by the worker's supervisor.
    pub max_output: Option<u64>,
    /// Names and values of the environment, for this function alone.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for ResourceLimits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.environment.iter().map(|(name, _)| String::from_utf8_lossy(name)).collect();
        out.debug_struct("ResourceLimits")
            .field("memory_limit", &self.memory_limit)
            .field("max_output", &self.max_output)
            .field("environment", &names)
            .finish()
    }
}

/// A number of bytes in a user's notation: in the largest unit that divides it.
pub(crate) struct ByteSize(pub u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 6] = [
            (1 << 30, "GiB"),
            (1_000_000_000, "GB"),
            (1 << 20, "MiB"),
            (1_000_000, "MB"),
            (1 << 10, "KiB"),
            (1_000, "kB"),
        ];
        match UNITS.into_iter().find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(out, "{} {name}", self.0 / unit),
            None => write!(out, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_as_they_were_given() {
        let shown = [2 << 30, 2_000_000_000, 512 << 20, 1_500_000, 4096, 64_000, 77, 0]
            .map(|bytes| ByteSize(bytes).to_string());
        assert_eq!(shown, ["2 GiB", "2 GB", "512 MiB", "1500 kB", "4 KiB", "64 kB", "77 bytes", "0 bytes"]);
    }

    #[test]
    fn values_are_not_shown() {
        let environment = vec![(b"API_KEY".to_vec(), b"sk-1".to_vec())];
        let shown = format!("{:?}", ResourceLimits { environment, ..ResourceLimits::default() });
        assert!(shown.contains("API_KEY") && !shown.contains("sk-1"), "{shown}");
    }
}
