//! Interfaces that change at random, in this namespace and another one.

use futures::TryStreamExt;
use rtnetlink::packet_route::link::{LinkMessage, MacVlanMode};
use rtnetlink::{Handle, LinkBridge, LinkMacVlan, LinkUnspec, LinkVeth};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::thread;

use nix::sched::{CloneFlags, unshare};

/// Names that interfaces take turns in using.
const NAMES: [&str; 10] = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"];

/// The interfaces of two namespaces.
pub(crate) struct Links {
    random: u64,
    here: Namespace,
    away: Namespace,
    done: Vec<String>,
    refused: u64,
}

struct Namespace {
    handle: Handle,
    file: File,
}

impl Links {
    /// Opens the calling thread's namespace, and sets its loopback interface up.
    pub(crate) async fn open(seed: u64) -> Self {
        let here = Namespace::of_this_thread();
        let runtime = tokio::runtime::Handle::current();
        let away = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let _entered = runtime.enter();
            Namespace::of_this_thread()
        });
        let away = away.join().unwrap();
        let lo = here.index("lo").await.unwrap();
        here.handle
            .link()
            .set(LinkUnspec::new_with_index(lo).up().build())
            .execute()
            .await
            .unwrap();
        Self { random: seed, here, away, done: Vec::new(), refused: 0 }
    }

    /// The number of changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.done.len() as u64
    }

    /// The number of changes that the kernel refused, for example because of a duplicate
    /// name.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// A random number below a bound (xorshift64*).
    pub(crate) fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
    }

    fn name(&mut self) -> &'static str {
        NAMES[usize::try_from(self.draw(NAMES.len() as u64)).unwrap()]
    }

    /// Makes one random change.
    pub(crate) async fn change(&mut self) {
        let (name, other, kind) = (self.name(), self.name(), self.draw(12));
        let last = u8::try_from(self.draw(200)).unwrap();
        let (verb, result) = match kind {
            0 | 1 => ("veth", self.here.add(LinkVeth::new(name, other).build()).await),
            2 => ("bridge", self.here.add(LinkBridge::new(name).build()).await),
            3 => ("macvlan", self.macvlan(name, other).await),
            4 => ("rename", self.here.set(name, |link| link.down().name(other)).await),
            5 => ("down", self.here.set(name, LinkMessageBuilder::down).await),
            6 => ("up", self.here.set(name, LinkMessageBuilder::up).await),
            7 => ("mtu", self.here.set(name, |link| link.mtu(1300 + u32::from(last))).await),
            8 => ("address", self.here.address(name, last).await),
            9 => ("away", self.here.move_to(name, &self.away).await),
            10 => ("back", self.away.move_to(name, &self.here).await),
            _ => ("delete", self.here.delete(name).await),
        };
        match result {
            Some(()) => self.done.push(format!("{verb} {name} {other} {last}")),
            None => self.refused += 1,
        }
    }

    async fn macvlan(&self, name: &str, parent: &str) -> Option<()> {
        let parent = self.here.index(parent).await?;
        self.here.add(LinkMacVlan::new(name, parent, MacVlanMode::Bridge).build()).await
    }
}

type LinkMessageBuilder = rtnetlink::LinkMessageBuilder<LinkUnspec>;

impl Namespace {
    fn of_this_thread() -> Self {
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        Self { handle, file: File::open("/proc/thread-self/ns/net").unwrap() }
    }

    async fn index(&self, name: &str) -> Option<u32> {
        let mut links = self.handle.link().get().match_name(name.to_owned()).execute();
        Some(links.try_next().await.ok()??.header.index)
    }

    async fn add(&self, link: LinkMessage) -> Option<()> {
        self.handle.link().add(link).execute().await.ok()
    }

    async fn set(
        &self,
        name: &str,
        change: impl FnOnce(LinkMessageBuilder) -> LinkMessageBuilder,
    ) -> Option<()> {
        let link = change(LinkUnspec::new_with_index(self.index(name).await?)).build();
        self.handle.link().set(link).execute().await.ok()
    }

    async fn address(&self, name: &str, last: u8) -> Option<()> {
        let (index, address) = (self.index(name).await?, Ipv4Addr::new(10, 1, last, 1));
        self.handle.address().add(index, IpAddr::V4(address), 24).execute().await.ok()
    }

    async fn move_to(&self, name: &str, other: &Self) -> Option<()> {
        let fd = other.file.as_raw_fd();
        self.set(name, |link| link.setns_by_fd(fd)).await
    }

    async fn delete(&self, name: &str) -> Option<()> {
        self.handle.link().del(self.index(name).await?).execute().await.ok()
    }
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.done).finish()
    }
}
