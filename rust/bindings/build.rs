//! Tells the crate which Python it is built for, and its tests where that Python's library lies.

/// The variable that maturin sets when it builds an extension module, which is not linked to
/// libpython.
const EXTENSION_MODULE: &str = "PYO3_BUILD_EXTENSION_MODULE";

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system != "linux") {
        println!(
            "cargo::error=Guerdon needs Linux (on Windows: WSL 2; on macOS: a Linux container or virtual machine)"
        );
        return;
    }
    println!("cargo:rerun-if-env-changed={EXTENSION_MODULE}");
    // Without this `cfg(Py_3_12)` and its like are silently false.
    pyo3_build_config::use_pyo3_cfgs();
    // Test binaries are linked to libpython; without an rpath the loader takes the system's, maybe
    // of another version, or none.
    if std::env::var_os(EXTENSION_MODULE).is_none()
        && let Some(folder) = pyo3_build_config::get().lib_dir()
    {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
