//! The memory of all open waits and subscriptions, mostly patterns: a common budget, of which each
//! caller has a share.
//!
//! Compiled patterns are shared: waits for the same patterns store them once, charged to the caller
//! that compiled them first.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use muxtap_api::{Error, ErrorCode, Result, WaitRequest};
use muxtap_core::stream::patterns::{PatternSet, TextPattern};

use crate::{Caller, limits};

/// The memory of all open waits' patterns and searches.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    used: Mutex<Used>,
    /// Bytes of the automaton states that searches have built.
    built: AtomicUsize,
    /// The patterns compiled for open waits.
    compiled: Mutex<HashMap<Key, Weak<Compiled>>>,
}

#[derive(Debug, Default)]
struct Used {
    all: usize,
    of_callers: HashMap<Caller, usize>,
}

/// The texts of compiled patterns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A set of patterns on the output.
    Set(Vec<String>),
    /// A pattern on a screen or a title.
    One(String),
}

/// Compiled patterns, charged to a caller while they live.
#[derive(Debug)]
pub(crate) struct Compiled {
    key: Key,
    what: What,
    /// `None` if the patterns are new and not shared yet.
    charge: Option<Charge>,
}

#[derive(Clone, Debug)]
enum What {
    Set(PatternSet),
    One(TextPattern),
}

/// A number of bytes charged to a caller until dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    caller: Caller,
    bytes: usize,
}

/// The bytes that a search has built, counted until dropped.
#[derive(Debug)]
pub(crate) struct Built {
    budget: Arc<Budget>,
    bytes: usize,
}

/// The patterns of a request that are compiled already.
#[derive(Debug, Default)]
pub(crate) struct Known {
    found: HashMap<Key, Arc<Compiled>>,
    /// Whether these are all patterns of the request.
    pub(super) is_all: bool,
}

impl Known {
    /// Returns a known set, or compiles it, and adds the holder of its charge to `uses`.
    pub(super) fn set<E>(
        &self,
        key: Key,
        uses: &mut Vec<Arc<Compiled>>,
        compile: impl FnOnce() -> std::result::Result<PatternSet, E>,
    ) -> std::result::Result<PatternSet, E> {
        if let Some(found) = self.found.get(&key)
            && let What::Set(set) = &found.what
        {
            uses.push(found.clone());
            return Ok(set.clone());
        }
        let set = compile()?;
        uses.push(Arc::new(Compiled { key, what: What::Set(set.clone()), charge: None }));
        Ok(set)
    }

    /// Returns a known pattern, or compiles it, and adds the holder of its charge to `uses`.
    pub(super) fn one<E>(
        &self,
        key: Key,
        uses: &mut Vec<Arc<Compiled>>,
        compile: impl FnOnce() -> std::result::Result<TextPattern, E>,
    ) -> std::result::Result<TextPattern, E> {
        if let Some(found) = self.found.get(&key)
            && let What::One(pattern) = &found.what
        {
            uses.push(found.clone());
            return Ok(pattern.clone());
        }
        let pattern = compile()?;
        uses.push(Arc::new(Compiled { key, what: What::One(pattern.clone()), charge: None }));
        Ok(pattern)
    }
}

impl Compiled {
    fn memory(&self) -> usize {
        match &self.what {
            What::Set(set) => set.memory(),
            What::One(pattern) => pattern.memory(),
        }
    }

    /// Returns a counter of the memory that a search for these patterns builds; `None` for patterns
    /// without a budget.
    pub(super) fn searching(&self) -> Option<Built> {
        self.charge.as_ref().map(|charge| Built { budget: charge.budget.clone(), bytes: 0 })
    }
}

impl Budget {
    /// Returns the patterns of a request that are compiled already.
    pub(super) fn known(&self, request: &WaitRequest) -> Known {
        let WaitRequest { patterns, fail, screen, gone, title, .. } = request;
        let set: Vec<String> = patterns.iter().chain(fail).cloned().collect();
        let ones = screen.iter().chain(gone).chain(title).cloned().map(Key::One);
        let keys = (!set.is_empty()).then_some(Key::Set(set)).into_iter().chain(ones);
        let compiled = self.compiled();
        let mut known = Known { found: HashMap::new(), is_all: true };
        for key in keys {
            match compiled.get(&key).and_then(Weak::upgrade) {
                Some(found) => drop(known.found.insert(key, found)),
                None => known.is_all = false,
            }
        }
        known
    }

    /// Charges a caller for new patterns, and lets later waits share them.
    ///
    /// Error: `RESOURCE_LIMIT`.
    pub(super) fn share(self: &Arc<Self>, new: Vec<Arc<Compiled>>, caller: &Caller) -> Result<Vec<Arc<Compiled>>> {
        let shared = new.into_iter().map(|new| {
            if new.charge.is_some() {
                return Ok(new);
            }
            // Another wait may have compiled the same patterns meanwhile: each wait then keeps its
            // own.
            let charge = Some(self.charge(caller, new.memory())?);
            let one = Arc::new(Compiled { key: new.key.clone(), what: new.what.clone(), charge });
            self.compiled().insert(one.key.clone(), Arc::downgrade(&one));
            Ok(one)
        });
        shared.collect()
    }

    /// Charges a caller for a number of bytes.
    ///
    /// Error: `RESOURCE_LIMIT`.
    pub(super) fn charge(self: &Arc<Self>, caller: &Caller, bytes: usize) -> Result<Charge> {
        let caller = caller.counted();
        let mut used = self.used();
        let own = used.of_callers.get(&caller).copied().unwrap_or_default();
        let refuse = |whose: &str, most: usize| {
            let message = format!(
                "the open waits and subscriptions of {whose} would take more than {} MiB; end some, use smaller \
                 repetition counts in patterns, or ASCII classes such as [0-9] and [A-Za-z] in place of \\d and \\w",
                most >> 20
            );
            Err(Error::new(ErrorCode::ResourceLimit, message))
        };
        if own + bytes > limits::CALLER_OPEN_BYTES {
            return refuse("this caller", limits::CALLER_OPEN_BYTES);
        }
        if used.all + bytes > limits::OPEN_BYTES {
            return refuse("all callers", limits::OPEN_BYTES);
        }
        used.all += bytes;
        *used.of_callers.entry(caller.clone()).or_default() += bytes;
        drop(used);
        Ok(Charge { budget: self.clone(), caller, bytes })
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compiled(&self) -> MutexGuard<'_, HashMap<Key, Weak<Compiled>>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut used = self.budget.used();
        used.all = used.all.saturating_sub(self.bytes);
        if let Some(own) = used.of_callers.get_mut(&self.caller) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                used.of_callers.remove(&self.caller);
            }
        }
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        let Some(charge) = &self.charge else { return };
        let mut compiled = charge.budget.compiled();
        // The entry may belong to patterns that were compiled later.
        if compiled.get(&self.key).is_some_and(|there| there.strong_count() == 0) {
            compiled.remove(&self.key);
        }
    }
}

impl Built {
    /// Records how many bytes a search has built. Returns whether all searches together are within
    /// their budget.
    pub(super) fn set(&mut self, bytes: usize) -> bool {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let built = &self.budget.built;
        let all = if bytes >= before {
            built.fetch_add(bytes - before, Ordering::Relaxed) + (bytes - before)
        } else {
            built.fetch_sub(before - bytes, Ordering::Relaxed) - (before - bytes)
        };
        all <= limits::SEARCH_BYTES
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(who: &str) -> Caller {
        Caller { face: "http", who: who.into(), ..Caller::default() }
    }

    #[test]
    fn wait_memory_is_bounded_per_caller_and_in_total() {
        let budget = Arc::new(Budget::default());
        let share = limits::CALLER_OPEN_BYTES;
        let own = budget.charge(&caller("192.0.2.1"), share).unwrap();
        let refused = budget.charge(&caller("192.0.2.1"), 1).unwrap_err();
        assert_eq!(refused.code, ErrorCode::ResourceLimit);
        assert!(refused.message.contains("this caller") && refused.message.contains("64 MiB"), "{refused}");
        let others: Vec<_> =
            (2..).map_while(|last| budget.charge(&caller(&format!("192.0.2.{last}")), share).ok()).collect();
        assert_eq!(others.len() + 1, limits::OPEN_BYTES / share);
        assert!(budget.charge(&caller("192.0.2.9"), 1).unwrap_err().message.contains("all callers"));
        drop((own, others));
        assert_eq!(budget.used().all, 0);
        assert!(budget.used().of_callers.is_empty());
        // All addresses of this machine count as one caller.
        let _own = budget.charge(&caller("127.0.0.1"), share).unwrap();
        for other in ["127.0.0.2", "::1", "::ffff:127.0.0.3"] {
            assert!(budget.charge(&caller(other), 1).is_err(), "{other}");
        }
    }

    #[test]
    fn equal_patterns_are_compiled_once_and_forgotten_with_the_last_wait() {
        let budget = Arc::new(Budget::default());
        let request = |text: &str| WaitRequest {
            panes: vec!["%1".into()],
            patterns: vec![text.into()],
            screen: vec!["two".into()],
            ..WaitRequest::default()
        };
        let compiled = |text: &str, who: &str| {
            let request = request(text);
            let known = budget.known(&request);
            let spec = super::super::spec::Spec::with(&request, &known).unwrap();
            (known.is_all, budget.share(spec.compiled, &caller(who)).unwrap())
        };
        let (was_known, first) = compiled(r"\w+ one", "192.0.2.1");
        let all = budget.used().all;
        assert!(!was_known && first.len() == 2 && all > 10_000);
        let (was_known, second) = compiled(r"\w+ one", "192.0.2.2");
        assert!(was_known);
        assert_eq!(budget.used().all, all);
        drop(first);
        assert!(compiled(r"\w+ one", "192.0.2.3").0, "the second wait has it");
        drop(second);
        assert_eq!(budget.used().all, 0);
        assert!(budget.compiled().is_empty());
        assert!(!compiled(r"\w+ one", "192.0.2.3").0);
    }

    #[test]
    fn search_memory_is_counted_until_the_search_ends() {
        let budget = Arc::new(Budget::default());
        let built = || Built { budget: budget.clone(), bytes: 0 };
        let (mut one, mut other) = (built(), built());
        assert!(one.set(limits::SEARCH_BYTES) && !other.set(1));
        assert!(one.set(limits::SEARCH_BYTES - 1) && other.set(1));
        drop(one);
        assert!(other.set(limits::SEARCH_BYTES));
        drop(other);
        assert_eq!(budget.built.load(Ordering::Relaxed), 0);
    }
}
