//! How much one address may have, and all together: bookkeeping without clock or socket.
//!
//! ```text
//! held     connections, handshakes, sessions, streams, transfers: counted, until they are given back
//! used     requests, texts of the model, and bytes that probes are answered with: earned with time, and saved up
//! ```
//!
//! A school or a household has one address, so the limits of one address are those of a large class. Whoever has few
//! devices has far less than its limit; whoever has many addresses meets the limits in all.

use std::{collections::HashMap, time::Duration};

use crate::address::Address;

/// What an address holds until it gives it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// A connection that speaks HTTP.
    Connection,
    /// A WebSocket whose Hello has not come.
    Handshake,
    /// A worker's session.
    Session,
    /// A stream of events.
    Stream,
    /// A blob, or a piece of one, on its way.
    Transfer,
}

/// What an address uses up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Used {
    /// Requests, by what they cost.
    Requests,
    /// Bytes of answers to probes.
    ProbeBytes,
    /// Texts that the model is to write.
    Texts,
}

const HELD: usize = 5;
const USED: usize = 3;
/// Addresses that may be known before those that hold nothing are looked through.
const MANY: usize = 4096;

impl Held {
    /// How it is called in a refusal.
    fn words(self) -> &'static str {
        match self {
            Held::Connection => "connections",
            Held::Handshake => "sessions without a Hello",
            Held::Session => "workers",
            Held::Stream => "open pages",
            Held::Transfer => "transfers of files",
        }
    }

    /// When to try again. What is held for long is given back late.
    fn again(self) -> Duration {
        Duration::from_secs(match self {
            Held::Session => 30,
            Held::Stream => 10,
            Held::Connection | Held::Handshake | Held::Transfer => 5,
        })
    }
}

/// Earned so many a second, saved up to a burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    pub(crate) per_second: f64,
    pub(crate) burst: f64,
}

/// The limits of one address, or of all.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Most {
    /// In the order of [`Held`].
    pub(crate) held: [usize; HELD],
    /// In the order of [`Used`].
    pub(crate) used: [Rate; USED],
}

/// Why an address gets no more at the moment.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{words}")]
pub(crate) struct Refused {
    /// One sentence.
    pub(crate) words: String,
    /// When to try again.
    pub(crate) after: Duration,
    /// Whether it is this address that has too much, and not all together.
    pub(crate) of_address: bool,
}

/// What one address has.
#[derive(Debug, Default, Clone)]
struct Account {
    held: [usize; HELD],
    /// For each of [`Used`], when all that has been used is earned again.
    even_at: [Duration; USED],
}

impl Account {
    fn is_blank(&self, now: Duration) -> bool {
        self.held == [0; HELD] && self.even_at.iter().all(|at| *at <= now)
    }

    /// Uses something up, or says how long that must wait. A burst is time that may be owed.
    fn try_use(&mut self, now: Duration, used: Used, amount: f64, rate: Rate) -> Result<(), Duration> {
        let cost = Duration::from_secs_f64(amount / rate.per_second);
        let may_owe = Duration::from_secs_f64(rate.burst / rate.per_second);
        let even_at = &mut self.even_at[used as usize];
        let after = (*even_at).max(now) + cost;
        match after.saturating_sub(now + may_owe) {
            Duration::ZERO => {
                *even_at = after;
                Ok(())
            }
            early => Err(early),
        }
    }
}

/// Who has how much.
#[derive(Debug)]
pub(crate) struct Book {
    each: Most,
    all: Most,
    accounts: HashMap<Address, Account>,
    in_all: Account,
    /// Accounts at which blank ones are removed.
    sweep_at: usize,
}

impl Book {
    pub(crate) fn new(each: Most, all: Most) -> Self {
        Self { each, all, accounts: HashMap::new(), in_all: Account::default(), sweep_at: MANY }
    }

    /// One more of something, until [`Book::give_back`].
    ///
    /// # Errors
    /// When this address, or all together, have as many as they may.
    pub(crate) fn take(&mut self, now: Duration, address: Address, what: Held) -> Result<(), Refused> {
        let most = self.each.held[what as usize];
        if address != Address::Local && self.held(address, what) >= most {
            let words = format!(
                "{most} {} from your address are as many as one address may have; try again later",
                what.words()
            );
            return Err(Refused { words, after: what.again(), of_address: true });
        }
        if self.in_all.held[what as usize] >= self.all.held[what as usize] {
            let words = format!("the coordinator has as many {} as it can; try again later", what.words());
            return Err(Refused { words, after: what.again(), of_address: false });
        }
        self.in_all.held[what as usize] += 1;
        self.account(now, address).held[what as usize] += 1;
        Ok(())
    }

    pub(crate) fn give_back(&mut self, now: Duration, address: Address, what: Held) {
        let in_all = &mut self.in_all.held[what as usize];
        *in_all = in_all.saturating_sub(1);
        if let Some(account) = self.accounts.get_mut(&address) {
            let held = &mut account.held[what as usize];
            *held = held.saturating_sub(1);
            if account.is_blank(now) {
                self.accounts.remove(&address);
            }
        }
    }

    /// Uses something up. This computer's own programs are not counted.
    ///
    /// # Errors
    /// When this address, or all together, have used more than they have earned.
    pub(crate) fn try_use(
        &mut self,
        now: Duration,
        address: Address,
        what: Used,
        amount: f64,
    ) -> Result<(), Refused> {
        if address == Address::Local {
            return Ok(());
        }
        let (each, all) = (self.each.used[what as usize], self.all.used[what as usize]);
        self.account(now, address).try_use(now, what, amount, each).map_err(|after| Refused {
            words: "your address asks for too much at a time; try again later".to_owned(),
            after,
            of_address: true,
        })?;
        self.in_all.try_use(now, what, amount, all).map_err(|after| Refused {
            words: "the coordinator is asked for too much at the moment; try again later".to_owned(),
            after,
            of_address: false,
        })
    }

    fn held(&self, address: Address, what: Held) -> usize {
        self.accounts.get(&address).map_or(0, |account| account.held[what as usize])
    }

    fn account(&mut self, now: Duration, address: Address) -> &mut Account {
        if self.accounts.len() >= self.sweep_at {
            self.sweep(now);
        }
        self.accounts.entry(address).or_default()
    }

    /// Memory is bounded by what is held, which has limits in all: what an address has used is forgotten when there are
    /// too many. Who has so many addresses gains nothing by another burst of one.
    fn sweep(&mut self, now: Duration) {
        self.accounts.retain(|_, account| !account.is_blank(now));
        if self.accounts.len() >= MANY {
            self.accounts.retain(|_, account| account.held != [0; HELD]);
        }
        self.sweep_at = MANY.max(2 * self.accounts.len());
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: u32) -> Address {
        Address::V4(Ipv4Addr::from_bits(number))
    }

    fn most(held: usize, burst: f64) -> Most {
        Most { held: [held; HELD], used: [Rate { per_second: 2.0, burst }; USED] }
    }

    const START: Duration = Duration::ZERO;

    #[test]
    fn one_address_has_its_limit_and_others_still_get_in_until_all_have_theirs() {
        let mut book = Book::new(most(2, 10.0), most(3, 100.0));
        let mut take = |number| book.take(START, address(number), Held::Stream);
        assert!(take(1).is_ok() && take(1).is_ok());
        assert!(take(1).is_err_and(|refused| refused.of_address && refused.after > Duration::ZERO));
        assert!(take(2).is_ok());
        assert!(take(3).is_err_and(|refused| !refused.of_address));
        assert!(book.take(START, address(1), Held::Session).is_ok(), "of one thing, not of others");
        book.give_back(START, address(1), Held::Stream);
        assert!(book.take(START, address(3), Held::Stream).is_ok());
    }

    #[test]
    fn this_computer_has_no_limit_of_its_own_but_counts_among_all() {
        let mut book = Book::new(most(1, 1.0), most(3, 1.0));
        for _ in 0..3 {
            assert!(book.take(START, Address::Local, Held::Session).is_ok());
        }
        assert!(book.take(START, Address::Local, Held::Session).is_err_and(|refused| !refused.of_address));
        assert!((0..100).all(|_| book.try_use(START, Address::Local, Used::Requests, 1.0).is_ok()));
    }

    #[test]
    fn a_burst_passes_and_then_what_time_earns() {
        let mut book = Book::new(most(1, 10.0), most(1, 1000.0));
        let mut ask = |seconds: f64, number| {
            book.try_use(Duration::from_secs_f64(seconds), address(number), Used::Requests, 1.0)
        };
        assert!((0..10).all(|_| ask(0.0, 1).is_ok()));
        let refused = ask(0.0, 1).unwrap_err();
        assert_eq!(refused.after, Duration::from_millis(500));
        assert!(ask(0.0, 2).is_ok(), "another address");
        assert!(ask(0.5, 1).is_ok());
        assert!(ask(0.5, 1).is_err());
        assert!((0..10).all(|_| ask(100.0, 1).is_ok()));
        assert!(ask(100.0, 1).is_err(), "no more than a burst is saved up");
    }

    #[test]
    fn all_together_have_a_rate_too() {
        let mut book = Book::new(most(1, 10.0), most(1, 15.0));
        let mut ask = |number| book.try_use(START, address(number), Used::ProbeBytes, 5.0);
        assert!(ask(1).is_ok() && ask(1).is_ok() && ask(2).is_ok());
        assert!(ask(3).is_err_and(|refused| !refused.of_address));
    }

    #[test]
    fn who_holds_nothing_is_forgotten() {
        let mut book = Book::new(most(1, 10.0), most(100, 1e9));
        book.take(START, address(0), Held::Session).unwrap();
        for number in 1..20_000 {
            let _ = book.try_use(START, address(number), Used::Requests, 1.0);
            assert!(book.accounts.len() <= MANY);
        }
        assert_eq!(book.held(address(0), Held::Session), 1);
        book.give_back(Duration::from_mins(1), address(0), Held::Session);
        assert!(!book.accounts.contains_key(&address(0)));
    }
}
