//! Modules that column values need, imported by the loaders: workers are forked with them, and no
//! call waits for them.
//!
//! - A loader that has forked workers first tries the modules in a child. Modules that end it, hang
//!   it or leave threads are left to the workers.
//! - A loader without workers is replaced by one that skips the harmful modules.

use std::io;
use std::os::fd::AsFd;

use tokio::time::timeout;

use super::ZygoteSupervisor;
use super::process::{Loader, LoaderClone, stay_stopped};
use crate::zygote_requests;

impl ZygoteSupervisor {
    /// Makes the loaders import the missing modules; false if a loader was lost.
    pub(super) async fn preload(&mut self) -> bool {
        let names = self.modules.names[self.modules.done..].join("\n");
        let Some(zygote) = self.zygote.as_ref().filter(|zygote| matches!(zygote.loader, Loader::Forks(..))) else {
            return true;
        };
        if names.is_empty() {
            return true;
        }
        let has_workers = self.forks > self.modules.forks_before;
        // The trial in a child may take as long as the import.
        let patience = self.load_timeout * (1 + u32::from(has_workers));
        let before = std::mem::replace(&mut self.modules.done, self.modules.names.len());
        let mut all_well = true;
        for loader in zygote.shared_loaders() {
            let imported = tokio::select! {
                imported = timeout(patience, self.request_import(&loader, &names, has_workers)) => imported,
                () = loader.parent.pidfd.ended() => Ok(Ok(false)),
                () = stay_stopped(vec![loader.pid]) => Ok(Ok(false)),
            };
            if !matches!(imported, Ok(Ok(true))) {
                zygote.kill_loader(loader.pid).await;
                all_well = false;
            }
        }
        if !all_well {
            self.modules.names.truncate(before);
            self.modules.done = before;
        }
        all_well
    }

    /// Returns whether a loader can go on forking.
    async fn request_import(&self, loader: &LoaderClone, names: &str, has_workers: bool) -> io::Result<bool> {
        let file = rustix::fs::memfd_create("guerdon-modules", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::io::pwrite(&file, names.as_bytes(), 0)?;
        let flags = if has_workers { zygote_requests::TRY_FIRST } else { 0 };
        let patience_ms = u64::try_from(self.load_timeout.as_millis()).unwrap_or(u64::MAX);
        loader.control.send(zygote_requests::PRELOAD, flags, patience_ms, &[file.as_fd()]).await?;
        Ok(loader.control.reply_to(zygote_requests::PRELOAD).await?.extra == 1)
    }
}
