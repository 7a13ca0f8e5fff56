//! The book of requests: which calls may explain what happened, and who sent them.
//!
//! Takes requests as `wire` emits them, with what their name or ID meant when they were sent. Answers the question
//! "who asked for this?" with one sender, several, or none. Never names a sender by the shape of a body while another
//! could have done it, and never uses one request to explain two things.

use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use crate::{
    digest::Digest,
    probe::record::{Boottime, Process, ProcessKey},
    wire::{
        method::Known,
        request::{Call, Header, Method, Request, Shape, Symbol},
    },
};

/// How many requests are kept. One that falls out can't be named any more: `forgotten` counts it.
const MOST: usize = 16_384;
/// How long a request may explain something. Replies are not seen: a slow disk may delay a deletion that long.
const KEPT: Duration = Duration::from_secs(120);
/// The same for pulls and transfers, which move whole images.
const KEPT_TRANSFER: Duration = Duration::from_secs(3600);
/// How long after its process ended. containerd finishes what was sent before.
const KEPT_AFTER_EXIT: Duration = Duration::from_secs(2);
/// After this long without a deletion, a request with an unknown method was no deletion: containerd answers in
/// milliseconds, and the event is published before the answer.
const FOLLOWED_BY_NOTHING: Duration = Duration::from_secs(5);
/// How far a request's time may lie behind the event's that it explains: the clocks are read in different places.
const CLOCK_SLACK: u64 = 2_000_000;
/// Ended senders that are remembered.
const MOST_ENDED: usize = 1024;
/// Symbols that are known to be no deletion.
const MOST_SYMBOLS: usize = 4096;

/// What a CRI removal may be called.
const REMOVE_IMAGE: [Known; 2] = [Known::RemoveImage, Known::RemoveImageAlpha];

/// What a request's reference meant when it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meant {
    /// The image IDs, if the reference named an image that existed; several if the name moved lately.
    pub ids: BTreeSet<Digest>,
    /// The names that the image had.
    pub names: BTreeSet<String>,
}

impl Meant {
    fn nothing(&self) -> bool {
        self.ids.is_empty() && self.names.is_empty()
    }
}

/// One request that may explain something.
#[derive(Debug, Clone)]
pub struct Asked {
    pub request: Request,
    pub meant: Meant,
    /// When the sender ended.
    gone: Option<Boottime>,
    /// Something that it meant went or changed since: it may have been the reason, and proves nothing any more.
    touched: bool,
}

impl Asked {
    /// From when on it can't explain anything.
    fn ends(&self) -> Boottime {
        let kept = match self.request.call {
            Call::PullImage { .. } | Call::Transfer { .. } => KEPT_TRANSFER,
            _ => KEPT,
        };
        let end = after(self.request.at, kept);
        self.gone.map_or(end, |gone| end.min(after(gone, KEPT_AFTER_EXIT)))
    }

    /// When it is known that its method deletes nothing, if it is followed by nothing.
    fn proves(&self) -> Option<(Symbol, Boottime)> {
        match self.request.method {
            Method::Symbol(symbol) if !self.touched && !self.meant.nothing() => {
                Some((symbol, after(self.request.at, FOLLOWED_BY_NOTHING)))
            }
            _ => None,
        }
    }
}

/// What is to be explained.
#[derive(Debug, Clone)]
pub enum Question<'a> {
    /// Names of one image went.
    Deleted { id: Option<Digest>, names: &'a [String] },
    /// A record's labels or target changed.
    Changed { name: &'a str },
    /// A blob's metadata was deleted.
    ContentDeleted { digest: Digest },
    /// A snapshot was removed by its key.
    SnapshotRemoved { key: &'a str },
}

/// Who asked.
#[derive(Debug, Clone)]
pub enum Blame {
    /// The call was seen, and its method is known.
    Seen {
        asked: Box<Asked>,
        count: u32,
    },
    /// One process sent something that can only be read by its shape.
    Inferred {
        asked: Box<Asked>,
        count: u32,
    },
    /// Several processes could have done it.
    Several {
        candidates: Vec<Asked>,
    },
    Nobody,
}

/// How well a request fits a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    No,
    Shape,
    Method,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Book {
    /// The watched namespace.
    namespace: String,
    asked: VecDeque<Asked>,
    /// Senders that ended a short while ago.
    ended: VecDeque<(ProcessKey, Boottime)>,
    /// Symbols whose requests were followed by nothing.
    innocent: VecDeque<Symbol>,
    /// Requests that were dropped because there were too many.
    forgotten: u64,
}

impl Book {
    pub fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            asked: VecDeque::new(),
            ended: VecDeque::new(),
            innocent: VecDeque::new(),
            forgotten: 0,
        }
    }

    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    pub fn add(&mut self, request: Request, meant: Meant) {
        if matches!(request.call, Call::Lost | Call::Opaque(Shape::Other)) {
            return;
        }
        if let Method::Symbol(symbol) = request.method {
            // What is known of a symbol now was true of its requests before.
            let same = |asked: &&mut Asked| asked.request.method == Method::Symbol(symbol);
            for asked in self.asked.iter_mut().filter(same) {
                asked.request.ruled_out = request.ruled_out;
            }
        }
        if self.asked.len() >= MOST {
            self.asked.pop_front();
            self.forgotten += 1;
        }
        self.asked.push_back(Asked { request, meant, gone: None, touched: false });
    }

    /// A name was created at `at`: a request for it that was sent after, but was read before, meant it.
    pub fn created(&mut self, name: &str, at: Boottime, meant: &Meant) {
        for asked in self.asked.iter_mut().rev() {
            if asked.request.at < at {
                break;
            }
            if asked.meant.nothing()
                && references(&asked.request.call)
                    .is_some_and(|text| text == name || meant.ids.iter().any(|id| text == id.to_string()))
            {
                asked.meant = meant.clone();
            }
        }
    }

    /// A name of an image went, or points elsewhere: requests that meant it may have been the reason.
    pub fn touched(&mut self, id: Option<Digest>, name: &str) {
        for asked in &mut self.asked {
            asked.touched |=
                id.is_some_and(|id| asked.meant.ids.contains(&id)) || asked.meant.names.contains(name);
        }
    }

    pub fn exited(&mut self, key: ProcessKey, at: Boottime) {
        for asked in self.asked.iter_mut().filter(|asked| asked.request.process.key == key) {
            asked.gone = Some(at);
        }
        if self.ended.len() >= MOST_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back((key, at));
    }

    /// What happened lately was not heard of until now: requests of senders that ended meanwhile may explain it.
    pub fn heard_again(&mut self, now: Boottime) {
        for gone in self.asked.iter_mut().filter_map(|asked| asked.gone.as_mut()) {
            *gone = now;
        }
    }

    /// Whether a sender's process ended: its connections are closed.
    pub fn ended(&self, key: ProcessKey) -> bool {
        self.ended.iter().any(|(ended, _)| *ended == key)
    }

    /// When `expire` has something to learn or to drop.
    pub fn deadline(&self) -> Option<Boottime> {
        let next = |asked: &Asked| match asked.proves() {
            Some((_, at)) => at.min(asked.ends()),
            None => asked.ends(),
        };
        self.asked.iter().map(next).min()
    }

    /// Drops what can't explain anything any more, and learns from what was followed by nothing.
    pub fn expire(&mut self, now: Boottime) {
        let innocent = &mut self.innocent;
        self.asked.retain(|asked| {
            if let Some((symbol, at)) = asked.proves()
                && at <= now
            {
                if !innocent.contains(&symbol) {
                    innocent.push_back(symbol);
                }
                return false;
            }
            asked.ends() > now
        });
        while innocent.len() > MOST_SYMBOLS {
            innocent.pop_front();
        }
    }

    /// Who asked for it? `at` is when it happened. The requests of the answer are used up: what follows needs others.
    pub fn blame(&mut self, question: &Question<'_>, at: Boottime) -> Blame {
        let fits: Vec<(usize, Fit)> = self
            .asked
            .iter()
            .enumerate()
            .filter(|(_, asked)| asked.request.at.0 <= at.0.saturating_add(CLOCK_SLACK))
            .map(|(index, asked)| (index, self.fit(asked, question)))
            .filter(|(_, fit)| *fit != Fit::No)
            .collect();
        let best = fits.iter().map(|(_, fit)| *fit).max().unwrap_or(Fit::No);
        // A known call that was followed by nothing for long says little against one of which only the shape is known.
        let fresh = |index: usize| after(self.asked[index].request.at, FOLLOWED_BY_NOTHING) >= at;
        let stale = best == Fit::Method
            && fits.iter().all(|(index, fit)| *fit != Fit::Method || !fresh(*index))
            && fits.iter().any(|(index, fit)| *fit == Fit::Shape && fresh(*index));
        let chosen: Vec<usize> =
            fits.into_iter().filter(|(_, fit)| stale || *fit == best).map(|(index, _)| index).collect();
        let senders: HashSet<ProcessKey> =
            chosen.iter().map(|index| self.asked[*index].request.process.key).collect();
        let count = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
        let blame = match (senders.len(), best, chosen.last()) {
            (1, Fit::Method, Some(last)) if !stale => {
                Blame::Seen { asked: Box::new(self.asked[*last].clone()), count }
            }
            (1, _, Some(last)) if best != Fit::No => {
                Blame::Inferred { asked: Box::new(self.asked[*last].clone()), count }
            }
            (0, ..) | (_, Fit::No, _) | (_, _, None) => Blame::Nobody,
            _ => {
                Blame::Several { candidates: chosen.iter().map(|index| self.asked[*index].clone()).collect() }
            }
        };
        for index in chosen.into_iter().rev() {
            self.asked.remove(index);
        }
        blame
    }

    /// Whether a known call already explains the question: nothing is used up.
    pub fn knows(&self, question: &Question<'_>, at: Boottime) -> Option<&Asked> {
        self.asked.iter().rev().find(|asked| {
            asked.request.at.0 <= at.0.saturating_add(CLOCK_SLACK) && self.fit(asked, question) == Fit::Method
        })
    }

    fn fit(&self, asked: &Asked, question: &Question<'_>) -> Fit {
        let Asked { request, meant, .. } = asked;
        match question {
            Question::Deleted { id, names } => self.fits_deletion(request, meant, *id, names),
            Question::Changed { name } => self.fits_change(request, meant, name),
            Question::ContentDeleted { digest } => match &request.call {
                Call::ContentDelete { digest: asked } => {
                    self.here(request, Fit::Method, *asked == digest.to_string())
                }
                Call::Opaque(Shape::Name { name }) => {
                    self.here(request, Fit::Shape, *name == digest.to_string())
                }
                _ => Fit::No,
            },
            Question::SnapshotRemoved { key } => match &request.call {
                Call::SnapshotsRemove { key: asked, .. } => self.here(request, Fit::Method, asked == key),
                Call::Opaque(Shape::Pair { second, .. }) => self.here(request, Fit::Shape, second == key),
                _ => Fit::No,
            },
        }
    }

    fn fits_deletion(&self, request: &Request, meant: &Meant, id: Option<Digest>, names: &[String]) -> Fit {
        let means_image = || {
            id.is_some_and(|id| meant.ids.contains(&id))
                || meant.names.iter().any(|name| names.contains(name))
        };
        match &request.call {
            // CRI has no namespace header: it always means its own, which is the watched one.
            Call::RemoveImage { .. } if means_image() => Fit::Method,
            Call::ImagesDelete { name, .. } => {
                self.here(request, Fit::Method, names.contains(name) && !meant.nothing())
            }
            Call::Opaque(Shape::ImageSpec { .. }) if means_image() && self.may_be(request, &REMOVE_IMAGE) => {
                Fit::Shape
            }
            Call::Opaque(Shape::Name { name }) if self.may_be(request, &[Known::ImagesDelete]) => {
                self.here(request, Fit::Shape, names.contains(name) && !meant.nothing())
            }
            _ => Fit::No,
        }
    }

    fn fits_change(&self, request: &Request, meant: &Meant, changed: &str) -> Fit {
        let named = |text: &str| text == changed || meant.names.iter().any(|name| name == changed);
        match &request.call {
            Call::ImagesUpdate { name, .. } | Call::ImagesCreate { name } => {
                self.here(request, Fit::Method, name == changed)
            }
            Call::Transfer { names } => {
                self.here(request, Fit::Method, names.iter().any(|name| name == changed))
            }
            Call::PullImage { image } if named(image) => Fit::Method,
            Call::Opaque(Shape::ImageSpec { image }) if named(image) => Fit::Shape,
            _ => Fit::No,
        }
    }

    /// A symbol may still be one of `methods`: neither did it prove harmless, nor did a later literal of all of them
    /// show that the older entries are others.
    fn may_be(&self, request: &Request, methods: &[Known]) -> bool {
        match request.method {
            Method::Symbol(symbol) => {
                !self.innocent.contains(&symbol)
                    && methods.iter().any(|method| !request.ruled_out.contains(*method))
            }
            Method::Lost => true,
            Method::Path(_) => false,
        }
    }

    fn here(&self, request: &Request, fit: Fit, when: bool) -> Fit {
        let elsewhere = matches!(&request.namespace, Header::Known(name) if *name != self.namespace);
        if when && !elsewhere { fit } else { Fit::No }
    }
}

/// A time and a while.
fn after(at: Boottime, wait: Duration) -> Boottime {
    Boottime(at.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
}

/// What the request's body refers to.
pub fn references(call: &Call) -> Option<&str> {
    match call {
        Call::RemoveImage { image }
        | Call::PullImage { image }
        | Call::Opaque(Shape::ImageSpec { image }) => Some(image),
        Call::ImagesCreate { name }
        | Call::ImagesUpdate { name, .. }
        | Call::ImagesDelete { name, .. }
        | Call::Opaque(Shape::Name { name }) => Some(name),
        Call::ContentDelete { digest } | Call::ContentUpdate { digest } => Some(digest),
        _ => None,
    }
}

/// The senders of the requests, each once.
pub fn senders(asked: &[Asked]) -> Vec<Arc<Process>> {
    let mut seen = HashSet::new();
    asked
        .iter()
        .map(|asked| &asked.request.process)
        .filter(|process| seen.insert(process.key))
        .cloned()
        .collect()
}
