//! A driver and agents on fake lanes, with links that take their time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::clock::Clock;
use guerdon_core::function::{Function, Shape};
use guerdon_core::lane::Lane;
use guerdon_core::outcome::{Cell, Status};
use guerdon_core::scheduler::Scheduler;
use guerdon_core::snapshots::AgentStats;
use guerdon_remote::{Agent, AgentConfig, Link, Pace, RemoteConfig, RemoteLane, RunsOn};
use guerdon_testkit::{Act, Ask, FakeLane, Log, NumberedPayload, Room, Script, done, function};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub const DIGEST: [u8; 32] = [7; 32];
pub const MS: Duration = Duration::from_millis(1);

pub fn one() -> Vec<Function> {
    vec![function("f", Shape::Sample)]
}

/// Calls take so long, each; a cell is worth its sample.
pub fn takes(after: Duration) -> impl Script {
    move |ask: &Ask| Act::Return { after, cells: vec![Cell::Value(ask.first as f64); ask.samples] }
}

/// Waits for the end of a batch whose cells are those of `takes`.
pub async fn all_ok(batch: &Arc<Batch>) {
    assert!(done(batch).await, "the batch never ends");
    assert!((0..batch.samples()).all(|sample| batch.shown(sample, 0) == (sample as f32, Status::Ok)));
}

/// How an agent is, and its way to the driver.
#[derive(Clone, Copy, Debug)]
pub struct NodeSpec {
    pub workers: usize,
    pub frame_calls: usize,
    /// What a message takes, each way.
    pub delay: Duration,
    pub carrier: Carrier,
}

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// One message after the other, each way.
    Plain,
    /// The transport of `guerdon._lanes.remote.ray`. The agent answers each message. Only urgent or
    /// large messages are sent beside one under way; those from the agent wait for more.
    Ray,
}

/// Of `Carrier::Ray`.
const FROM_AGENT: Pace = Pace { linger: Duration::from_millis(10), enough: 64 << 10 };
const TO_AGENT: Pace = Pace { linger: Duration::from_millis(5), enough: 512 << 10 };
const BESIDE: Pace = Pace { linger: Duration::MAX, ..TO_AGENT };
const BESIDE_WAIT: Duration = Duration::from_millis(3);
const RAY_DEPTH: usize = 2;

impl NodeSpec {
    pub fn new(workers: usize) -> Self {
        Self { workers, frame_calls: 64, delay: Duration::from_micros(200), carrier: Carrier::Plain }
    }

    /// A node of a Ray cluster.
    pub fn ray(workers: usize) -> Self {
        Self { delay: Duration::from_millis(2), carrier: Carrier::Ray, ..Self::new(workers) }
    }
}

/// Carries messages one way.
struct Way {
    from: Arc<Link>,
    to: Arc<Link>,
    bytes: Arc<AtomicU64>,
    messages: Arc<AtomicU64>,
    damage: Arc<OnceLock<Damage>>,
    delay: Duration,
}

impl Way {
    /// Counts a message; as it arrives.
    fn carry(&self, message: Vec<u8>) -> Vec<u8> {
        self.bytes.fetch_add(message.len() as u64, Ordering::Relaxed);
        let number = self.messages.fetch_add(1, Ordering::Relaxed);
        if let Some(damage) = self.damage.get() { damage(number, message) } else { message }
    }

    async fn one_by_one(self) {
        while let Some(message) = self.from.next(Pace::AT_ONCE).await {
            let message = self.carry(message);
            tokio::time::sleep(self.delay).await;
            self.to.deliver(message);
        }
        self.to.lost("the connection was closed", false);
    }

    fn deliver_later(&self, message: Vec<u8>) {
        let message = self.carry(message);
        let (to, delay) = (self.to.clone(), self.delay);
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            to.deliver(message);
        });
    }

    async fn answered(self) {
        let mut answers = VecDeque::new();
        loop {
            let message = if answers.is_empty() {
                self.from.next(TO_AGENT).await
            } else {
                let Ok(message) = tokio::time::timeout(BESIDE_WAIT, self.from.next(BESIDE)).await else {
                    tokio::time::sleep_until(answers.pop_front().unwrap()).await;
                    continue;
                };
                message
            };
            let Some(message) = message else { break };
            self.deliver_later(message);
            answers.push_back(Instant::now() + 2 * self.delay);
            if answers.len() == RAY_DEPTH {
                tokio::time::sleep_until(answers.pop_front().unwrap()).await;
            }
        }
        tokio::time::sleep(self.delay).await;
        self.to.lost("the connection was closed", false);
    }

    async fn streamed(self) {
        while let Some(message) = self.from.next(FROM_AGENT).await {
            self.deliver_later(message);
        }
        tokio::time::sleep(self.delay).await;
        self.to.lost("the connection was closed", false);
    }
}

struct NodeRig {
    agent: Arc<Agent>,
    ours: Arc<Link>,
    theirs: Arc<Link>,
    lane: Arc<FakeLane>,
    /// Its event loop.
    at_once: Arc<FakeLane>,
    pumps: Vec<JoinHandle<()>>,
}

/// See the module.
pub struct Rig {
    pub scheduler: Scheduler,
    pub lane: Arc<RemoteLane>,
    pub local: Arc<FakeLane>,
    pub warnings: Arc<Mutex<Vec<String>>>,
    /// Bytes of all messages, and how many there were.
    pub bytes: Arc<AtomicU64>,
    pub messages: Arc<AtomicU64>,
    functions: Vec<Function>,
    runs_on: Vec<RunsOn>,
    script: Arc<dyn Script>,
    /// Told of each call that a node begins; it may say what becomes of that one.
    pub overrides: Arc<OnceLock<Override>>,
    damage: Arc<OnceLock<Damage>>,
    nodes: Mutex<BTreeMap<String, NodeRig>>,
}

/// Changes a message on its way; takes its number, too.
type Damage = Box<dyn Fn(u64, Vec<u8>) -> Vec<u8> + Send + Sync>;

/// Takes a node's name and what it begins.
pub type Override = Box<dyn Fn(&str, &Ask) -> Option<Act> + Send + Sync>;

struct SharedScript {
    script: Arc<dyn Script>,
    node: String,
    overrides: Arc<OnceLock<Override>>,
}

impl Script for SharedScript {
    fn act(&self, ask: &Ask) -> Act {
        let overridden = self.overrides.get().and_then(|instead| instead(&self.node, ask));
        overridden.unwrap_or_else(|| self.script.act(ask))
    }
}

fn fake(script: SharedScript, workers: usize, frame_calls: usize) -> Arc<FakeLane> {
    // Room of a worker of the process lane: one frame runs, one waits in its socket.
    let room = Room { places: workers, frame_calls, take_back: Duration::from_millis(40), ..Room::default() };
    Arc::new(FakeLane::new(room, script))
}

/// The lane of functions that run on a loop: it takes what it gets.
fn event_loop(script: SharedScript) -> Arc<FakeLane> {
    let room = Room { places: 64, at_once: true, ..Room::default() };
    Arc::new(FakeLane::new(room, script))
}

impl Rig {
    pub fn new(functions: Vec<Function>, script: impl Script) -> Self {
        Self::with(functions, script, |_| {})
    }

    pub fn with(functions: Vec<Function>, script: impl Script, change: impl FnOnce(&mut RemoteConfig)) -> Self {
        let script: Arc<dyn Script> = Arc::new(script);
        let runtime = Handle::current();
        let clock = Clock::start();
        let plain = SharedScript { script: script.clone(), node: String::new(), overrides: Arc::default() };
        let (warnings, local) = (Arc::<Mutex<Vec<String>>>::default(), fake(plain, 1, 64));
        let (of_local, heard) = (local.clone(), warnings.clone());
        let mut config =
            RemoteConfig::new(DIGEST, functions.len(), Box::new(move || of_local.clone() as Arc<dyn Lane>));
        config.warn = Arc::new(move |warning| heard.lock().push(warning));
        change(&mut config);
        let runs_on = config.runs_on.clone();
        let lane = RemoteLane::new(runtime.clone(), clock, &functions, config);
        let scheduler = Scheduler::start(&runtime, clock, functions.clone(), vec![lane.clone()]);
        Self {
            scheduler,
            lane,
            local,
            warnings,
            bytes: Arc::default(),
            messages: Arc::default(),
            functions,
            runs_on,
            script,
            overrides: Arc::default(),
            damage: Arc::default(),
            nodes: Mutex::default(),
        }
    }

    /// A node comes.
    pub fn add(&self, name: &str, spec: NodeSpec) {
        let script =
            || SharedScript { script: self.script.clone(), node: name.to_owned(), overrides: self.overrides.clone() };
        let (lane, at_once) = (fake(script(), spec.workers, spec.frame_calls), event_loop(script()));
        let config = AgentConfig { digest: DIGEST, slots: spec.workers, stats: Box::new(AgentStats::default) };
        let lanes: Vec<Arc<dyn Lane>> = vec![lane.clone(), at_once.clone()];
        let functions = self
            .functions
            .iter()
            .zip(&self.runs_on)
            .map(|(function, on)| Function { lane: usize::from(matches!(on, RunsOn::Loop(_))), ..function.clone() });
        let agent = Arc::new(Agent::start(&Handle::current(), Clock::start(), functions.collect(), lanes, config));
        let node = self.link(name, spec, &agent, (&lane, &at_once));
        self.nodes.lock().insert(name.to_owned(), node);
    }

    /// Nodes come that are alike.
    pub fn add_all(&self, names: &[&str], spec: NodeSpec) {
        names.iter().for_each(|name| self.add(name, spec));
    }

    /// Messages are changed on their way.
    pub fn damage(&self, how: impl Fn(u64, Vec<u8>) -> Vec<u8> + Send + Sync + 'static) {
        assert!(self.damage.set(Box::new(how)).is_ok());
    }

    /// Another driver comes to an agent that this one has.
    pub fn share(&self, name: &str, spec: NodeSpec, with: &Self) {
        let node = {
            let nodes = self.nodes.lock();
            with.link(name, spec, &nodes[name].agent, (&nodes[name].lane, &nodes[name].at_once))
        };
        with.nodes.lock().insert(name.to_owned(), node);
    }

    fn link(
        &self,
        name: &str,
        spec: NodeSpec,
        agent: &Arc<Agent>,
        (lane, at_once): (&Arc<FakeLane>, &Arc<FakeLane>),
    ) -> NodeRig {
        let (ours, theirs) = (self.lane.add_node(name).unwrap(), agent.connect("driver"));
        let way = |from: &Arc<Link>, to: &Arc<Link>| Way {
            from: from.clone(),
            to: to.clone(),
            bytes: self.bytes.clone(),
            messages: self.messages.clone(),
            damage: self.damage.clone(),
            delay: spec.delay,
        };
        let (there, back) = (way(&ours, &theirs), way(&theirs, &ours));
        let pumps = match spec.carrier {
            Carrier::Plain => vec![tokio::spawn(there.one_by_one()), tokio::spawn(back.one_by_one())],
            Carrier::Ray => vec![tokio::spawn(there.answered()), tokio::spawn(back.streamed())],
        };
        NodeRig { agent: agent.clone(), ours, theirs, lane: lane.clone(), at_once: at_once.clone(), pumps }
    }

    /// A node is gone, from one moment to the next; false: there is none.
    pub fn kill(&self, name: &str, innocent: bool) -> bool {
        let Some(node) = self.nodes.lock().remove(name) else { return false };
        node.pumps.iter().for_each(JoinHandle::abort);
        node.ours.lost("killed", innocent);
        node.theirs.lost("killed", true);
        tokio::spawn(async move { node.agent.close().await });
        true
    }

    /// This driver has gone, from one moment to the next.
    pub fn hang_up(&self, name: &str) {
        if let Some(node) = self.nodes.lock().remove(name) {
            node.pumps.iter().for_each(JoinHandle::abort);
            node.theirs.lost("the driver has gone", false);
        }
    }

    /// Its messages go no further from now on, either way.
    pub fn stop(&self, name: &str) {
        self.nodes.lock()[name].pumps.iter().for_each(JoinHandle::abort);
    }

    /// Its workers print something.
    pub fn print(&self, name: &str, lines: &[u8]) {
        self.nodes.lock()[name].agent.print(lines);
    }

    /// Frames that its agent has.
    pub fn frames_at(&self, name: &str) -> usize {
        self.nodes.lock()[name].agent.frames()
    }

    /// Its lanes warn of something.
    pub fn warn(&self, name: &str, what: &str) {
        self.nodes.lock()[name].agent.warn(what);
    }

    pub fn loop_log_of(&self, name: &str) -> Arc<Log> {
        self.nodes.lock()[name].at_once.log()
    }

    pub fn log_of(&self, name: &str) -> Arc<Log> {
        self.nodes.lock()[name].lane.log()
    }

    pub fn submit(&self, number: u64, groups: usize, group_size: usize) -> Arc<Batch> {
        let payload = Box::new(NumberedPayload { batch: number, bytes: 40 });
        self.scheduler.submit(BatchSpec::whole(groups * group_size, group_size, payload)).unwrap()
    }

    /// Ends all; nothing may be left at the agents.
    pub async fn close(self) {
        self.scheduler.close().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let nodes = std::mem::take(&mut *self.nodes.lock());
        for (name, node) in nodes {
            assert_eq!(node.agent.frames(), 0, "frames are left at {name}");
            node.agent.close().await;
            assert!(node.ours.is_closed() && node.theirs.is_closed());
        }
    }
}
