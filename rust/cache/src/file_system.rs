//! Detects folders on network file systems: SQLite's locks do not work between machines.

use std::path::Path;

/// Returns the network file system that a folder is on, if any.
#[cfg(target_os = "linux")]
pub(crate) fn network(folder: &Path) -> Option<&'static str> {
    named(rustix::fs::statfs(folder).ok()?.f_type)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn network(_: &Path) -> Option<&'static str> {
    None
}

/// Returns the name of a network file system, by Linux's magic number.
#[cfg(target_os = "linux")]
const fn named(kind: i64) -> Option<&'static str> {
    Some(match kind & 0xFFFF_FFFF {
        0x6969 => "NFS",
        0x517B | 0xFE53_4D42 | 0xFF53_4D42 => "SMB",
        0x0BD0_0BD0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x00C3_6400 => "CephFS",
        0x1983_0326 => "BeeGFS",
        0xAAD7_AAEA => "PanFS",
        _ => return None,
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_have_names() {
        assert_eq!(named(0x6969), Some("NFS"));
        assert_eq!(named(i64::from(0xFE53_4D42_u32 as i32)), Some("SMB"));
        assert_eq!(named(0xEF53), None, "ext4");
        assert_eq!(network(&std::env::temp_dir()), None);
    }
}
