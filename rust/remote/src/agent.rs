//! An agent: lanes of this process, which run calls for drivers in other processes.
//!
//! - Several drivers may share it; each has a session, and they take turns.
//! - When a driver is gone, its frames here are ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use guerdon_core::clock::Clock;
use guerdon_core::frame_runner::FrameRunner;
use guerdon_core::function::Function;
use guerdon_core::lane::Lane;
use tokio::runtime::Handle;

use crate::agent_output::AgentOutput;
use crate::agent_session;
use crate::agent_state::{AgentConfig, AgentState, Inspector, Sessions};
use crate::link::Link;
use crate::wire::ToDriver;

/// See the module.
pub struct Agent {
    runtime: Handle,
    state: Arc<AgentState>,
    last_session: AtomicU64,
}

impl Agent {
    /// Starts the lanes; `Function::lane` is an index into them.
    #[must_use]
    pub fn start(
        runtime: &Handle,
        clock: Clock,
        functions: Vec<Function>,
        lanes: Vec<Arc<dyn Lane>>,
        config: AgentConfig,
    ) -> Self {
        let sessions = Arc::new(Sessions::new(config.slots));
        let runner = FrameRunner::start(runtime, clock, functions, lanes, sessions.clone());
        let (output, inspector) = (AgentOutput::default(), OnceLock::new());
        let state = Arc::new(AgentState { clock, config, runner, sessions, output, inspector });
        Self { runtime: runtime.clone(), state, last_session: AtomicU64::new(0) }
    }

    /// Adds a driver, and returns this end of the link to it.
    #[must_use]
    pub fn connect(&self, peer: &str) -> Arc<Link> {
        let link = Link::new(peer);
        let session = self.last_session.fetch_add(1, Ordering::Relaxed) + 1;
        self.state.sessions.add(session, link.clone());
        self.runtime.spawn(agent_session::serve(self.state.clone(), session, link.clone()));
        link
    }

    /// Sets the source of the snapshots of calls that drivers request. Only the first call counts.
    pub fn inspect_with(&self, inspector: Inspector) {
        let _ = self.state.inspector.set(inspector);
    }

    /// Sends output of workers to the driver that came first, among those that read.
    pub fn print(&self, lines: &[u8]) {
        self.state.output.print(&self.state.sessions.all(), lines);
    }

    /// Sends a warning of the lanes to the driver that came first.
    pub fn warn(&self, what: &str) {
        if let Some(link) = self.state.sessions.all().first() {
            link.write(|out| ToDriver::Warning(what.to_owned()).write(out));
        }
    }

    /// Number of frames that have not ended.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.state.runner.frames()
    }

    /// Ends the lanes and all sessions.
    pub async fn close(&self) {
        for link in self.state.sessions.all() {
            link.write(|out| ToDriver::Refused("its agent was closed".to_owned()).write(out));
            link.close();
        }
        self.state.runner.close().await;
    }
}
