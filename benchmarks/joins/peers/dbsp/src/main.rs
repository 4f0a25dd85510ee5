//! Run one join of the bench on the crate `dbsp`: whole files in, a transaction a batch, Parquet out.
//!
//! A batch is read, joined, written and checkpointed in turn, each of it on as many threads as there are workers.

mod files;
mod queries;

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::time::Instant;

use dbsp::DBSPHandle;
use dbsp::circuit::{
    CircuitConfig, CircuitStorageConfig, StorageCacheConfig, StorageConfig, StorageOptions,
};
use dbsp::mimalloc::MiMalloc;
use serde_json::{Value, json};

use crate::files::Streams;
use crate::queries::{Eq5, Interval, Query};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What the program is told: `--name value`, each of them once.
pub struct Options(HashMap<String, String>);

impl Options {
    fn read() -> Outcome<Self> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let mut given = HashMap::new();
        for pair in words.chunks(2) {
            match pair {
                [name, value] if name.starts_with("--") => {
                    given.insert(name[2..].to_owned(), value.clone());
                }
                _ => return Err(format!("expected --name value, found {pair:?}").into()),
            }
        }
        Ok(Self(given))
    }

    pub fn get(&self, name: &str) -> Outcome<&str> {
        let found = self.0.get(name).map(String::as_str);
        found.ok_or_else(|| format!("--{name} is missing").into())
    }

    pub fn count(&self, name: &str) -> Outcome<usize> {
        Ok(self.get(name)?.parse()?)
    }
}

fn main() -> Outcome<()> {
    let options = Options::read()?;
    match options.get("query")? {
        "interval" => run::<Interval>(&options),
        "eq5" => run::<Eq5>(&options),
        other => Err(format!("unknown query {other}; there are interval and eq5").into()),
    }
}

fn run<Q: Query>(options: &Options) -> Outcome<()> {
    let workers = options.count("workers")?;
    let storage = options.get("checkpoint")?;
    std::fs::create_dir_all(storage)?;
    std::fs::create_dir_all(options.get("output")?)?;
    let (mut circuit, mut query) = Q::build(configure(workers, storage)?, options)?;
    let streams = Streams::find(options, Q::STREAMS)?;
    let started = Instant::now();
    let (mut samples, mut batches, mut done) = (vec![], vec![], 0);
    for batch in 0..streams.count_batches() {
        let began = Instant::now();
        let rows = query.feed(&streams, batch, workers)?;
        let read = Instant::now();
        circuit.transaction()?;
        let joined = Instant::now();
        let results = query.write(options.get("output")?, batch, workers)?;
        let written = Instant::now();
        keep(&mut circuit)?;
        done += rows;
        samples.push(json!([started.elapsed().as_secs_f64(), done]));
        batches.push(json!({
            "rows": rows,
            "rows_out": results,
            "seconds": began.elapsed().as_secs_f64(),
            "phase_seconds": {
                "read": (read - began).as_secs_f64(),
                "join": (joined - read).as_secs_f64(),
                "write": (written - joined).as_secs_f64(),
                "checkpoint": written.elapsed().as_secs_f64(),
            },
        }));
    }
    let outcome: Value = json!({
        "samples": samples,
        "batches": batches,
        "settings": {"workers": workers, "storage": "files, a checkpoint a batch", "join": options.get("join")?},
        "versions": {"dbsp": env!("CARGO_PKG_VERSION")},
    });
    std::fs::write(options.get("result")?, outcome.to_string())?;
    circuit.kill().map_err(|_| "a worker of dbsp failed as it ended".into())
}

fn configure(workers: usize, storage: &str) -> Outcome<CircuitConfig> {
    let config = StorageConfig { path: storage.to_owned(), cache: StorageCacheConfig::default() };
    let storage = CircuitStorageConfig::for_config(config, StorageOptions::default())?;
    Ok(CircuitConfig::with_workers(workers)
        .with_storage(Some(storage))
        // All rows of a batch are there before it is committed.
        .with_allow_input_during_commit(false))
}

/// Write all state that changed since the last batch, and drop checkpoints that are not needed any more.
fn keep(circuit: &mut DBSPHandle) -> Outcome<()> {
    circuit.checkpoint().run()?;
    circuit.gc_checkpoint(HashSet::new())?;
    Ok(())
}
