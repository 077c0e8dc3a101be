//! Loaders in addition to the first: some fork workers at the same time, others fork a single
//! worker each.
//!
//! - One loader forks all workers if the machine has no room for another process.
//! - The loader of a single worker ends after that was reaped; losing it ends no other worker. If
//!   it can't be forked, its worker has the same parent as others.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use guerdon_core::pidfd::Pidfd;
use rustix::process::Pid;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::ZygoteSupervisor;
use super::new_worker::{answered_by, fork_by, is_refusal};
use super::process::{Loader, LoaderClone, ZygoteProcess};
use super::requests::ForkReply;
use crate::child::{ForkedWorker, pid_from_message};
use crate::parent::Parent;
use crate::zygote_requests::{self, ZygoteSocket};

/// Time in which one loader forks all workers, after a fork failed for lack of room.
const ONE_LOADER: Duration = Duration::from_secs(60);

impl ZygoteSupervisor {
    /// Forks a worker for each request, with as many loaders at the same time.
    pub(super) async fn fork_round(&mut self, asked: Vec<ForkReply>) {
        let mut again = Vec::new();
        if asked.len() < 2 || self.prepared().await.is_err() {
            again = asked;
        } else {
            let mut round = JoinSet::new();
            let mut loaders = self.zygote.iter().flat_map(ZygoteProcess::shared_loaders);
            for reply in asked {
                match loaders.next() {
                    Some(LoaderClone { control, pid, parent }) => {
                        let ask = async move { (answered_by(pid, fork_by(&control, parent)).await, pid, reply) };
                        round.spawn(ask);
                    }
                    None => again.push(reply),
                }
            }
            drop(loaders);
            while let Some(forked) = round.join_next().await {
                let Ok((forked, pid, reply)) = forked else { continue };
                match forked {
                    Err(error) if !is_refusal(&error) => {
                        // The zygote is lost, or answers are out of step.
                        if let Some(zygote) = &self.zygote {
                            zygote.kill_loader(pid).await;
                        }
                        again.push(reply);
                    }
                    // Other loaders may fork in its place.
                    Err(_) if self.has_clones() => again.push(reply),
                    forked => {
                        self.forks += usize::from(forked.is_ok());
                        let _ = reply.send(forked);
                    }
                }
            }
        }
        for reply in again {
            let mut forked = self.fork().await;
            if forked.as_ref().is_err_and(is_refusal) && self.has_clones() {
                self.end_clones().await;
                forked = self.fork().await;
            }
            // If the receiver is gone, the child ends because its socket does.
            let _ = reply.send(forked);
        }
    }

    /// Makes the loader fork another loader.
    pub(super) async fn clone_loader(&mut self) {
        let made = match self.prepared().await {
            Ok(()) => self.answered(async |supervisor| supervisor.request_loader(Parent::new).await).await,
            Err(error) => Err(error),
        };
        if made.is_err() {
            // If more loaders don't fit, further workers may not fit either.
            self.end_clones().await;
        }
    }

    fn has_clones(&self) -> bool {
        self.zygote.as_ref().is_some_and(|zygote| zygote.clones.iter().any(|clone| !clone.parent.is_of_one()))
    }

    /// Makes room for workers: without room for a process, one loader forks all workers.
    async fn end_clones(&mut self) {
        self.one_loader_until = Some(Instant::now() + ONE_LOADER);
        if let Some(zygote) = &self.zygote {
            zygote.kill_clones().await;
        }
    }

    /// Makes the first loader fork another, if possible.
    async fn request_loader(
        &mut self,
        as_parent: fn(Pidfd, &Arc<Parent>) -> Arc<Parent>,
    ) -> io::Result<Option<LoaderClone>> {
        let Some(zygote) = &mut self.zygote else { return Err(io::ErrorKind::NotConnected.into()) };
        let Loader::Forks(first, _, above) = &zygote.loader else { return Ok(None) };
        let (control, theirs) = ZygoteSocket::new()?;
        first.send(zygote_requests::LOADER, 0, 0, &[theirs.as_fd()]).await?;
        let pid = pid_from_message(first.reply_to(zygote_requests::LOADER).await?.value)?;
        let clone = LoaderClone { control: Arc::new(control), pid, parent: as_parent(Pidfd::open(pid)?, above) };
        // Requested before its first worker, so that workers are not reaped without a request when
        // it ends.
        zygote
            .control
            .send(zygote_requests::KNOW, 0, u64::from(pid.as_raw_nonzero().get().unsigned_abs()), &[])
            .await?;
        zygote.clones.push(clone.clone());
        Ok(Some(clone))
    }

    /// Forks a worker with a dedicated loader, or like others if there can be none.
    pub(super) async fn fork_apart(&mut self) -> io::Result<ForkedWorker> {
        if self.prepared().await.is_ok() {
            match self.answered(async |supervisor| supervisor.request_loader(Parent::of_one).await).await {
                Ok(Some(LoaderClone { control, pid, parent })) => {
                    if let Ok(forked) = answered_by(pid, fork_by(&control, parent)).await {
                        self.forks += 1;
                        return Ok(forked);
                    }
                    self.end_loader(pid).await;
                }
                // The zygote is lost, or answers are out of step.
                Err(error) if !is_refusal(&error) => self.lose_stem(),
                Ok(None) | Err(_) => {}
            }
        }
        self.fork().await
    }

    /// Ends a loader that is not needed any more.
    pub(super) async fn end_loader(&mut self, pid: Pid) {
        if let Some(zygote) = &mut self.zygote {
            zygote.kill_loader(pid).await;
            // A zygote that does not answer is detected at the next request.
            let _ = zygote.forget_ended_loaders().await;
        }
    }
}
