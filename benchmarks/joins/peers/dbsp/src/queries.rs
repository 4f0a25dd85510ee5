//! The joins as circuits of dbsp: what streams become, what is joined, and what comes out.

use std::cell::Cell as Slot;
use std::path::Path;

use dbsp::algebra::F64;
use dbsp::circuit::CircuitConfig;
use dbsp::dynamic::DowncastTrait;
use dbsp::trace::{BatchReader as _, Cursor as _};
use dbsp::typed_batch::{BatchReader, SpineSnapshot, TypedBox};
use dbsp::utils::{Tup2, Tup3, Tup5, Tup6, Tup8};
use dbsp::{
    DBData, DBSPHandle, IndexedZSetHandle, InputHandle, OrdZSet, OutputHandle, Runtime, ZWeight,
};

use crate::files::{Cell, Columns, Joined, Kind, ResultFile, Streams};
use crate::{Options, Outcome};

/// How long before and after an ad was shown a click may be, and how long rows may come behind others.
const BEFORE_MS: i64 = 2_000;
const AFTER_MS: i64 = 8_000;
const DELAY_MS: i64 = 2_000;
/// Clicks and ads meet in periods as long as the interval: a click then has ads in two of them at most.
const PERIOD_MS: i64 = BEFORE_MS + AFTER_MS;

/// A join with its inputs and its output.
pub trait Query: Sized {
    const STREAMS: &'static [&'static str];

    fn build(config: CircuitConfig, options: &Options) -> Outcome<(DBSPHandle, Self)>;

    /// Hand over the rows of a batch; return how many there are.
    fn feed(&mut self, streams: &Streams, batch: usize, threads: usize) -> Outcome<usize>;

    /// Write the results of a batch; return how many there are.
    fn write(&self, output: &str, batch: usize, workers: usize) -> Outcome<usize>;
}

type Fed<K, V> = Tup2<K, Tup2<V, ZWeight>>;

/// Hand over what was read, a part of it to each worker, and count it.
fn hand_over<K: DBData, V: DBData>(handle: &IndexedZSetHandle<K, V>, read: Vec<Vec<Fed<K, V>>>) {
    for mut rows in read {
        handle.append(&mut rows);
    }
}

fn count<T>(read: &[Vec<T>]) -> usize {
    read.iter().map(Vec::len).sum()
}

/// Write what each worker has found to a file of its own.
fn write_results<R: DBData + Joined>(
    results: &OutputHandle<SpineSnapshot<OrdZSet<R>>>,
    output: &str,
    batch: usize,
    workers: usize,
) -> Outcome<usize> {
    let write = |worker: usize| -> Outcome<usize> {
        let Some(found) = results.take_from_worker(worker) else { return Ok(0) };
        let path = Path::new(output).join(format!("part-{batch:05}-{worker}.parquet"));
        let mut file = ResultFile::create::<R>(&path)?;
        let mut rows = 0;
        let mut cursor = found.inner().cursor();
        while cursor.key_valid() {
            let times = **cursor.weight();
            // SAFETY: the batch is one of rows of this type, of which dbsp has no cursor with types.
            let row = unsafe { cursor.key().downcast::<R>() };
            for _ in 0..times {
                file.push(row)?;
                rows += 1;
            }
            cursor.step_key();
        }
        file.close()?;
        Ok(rows)
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|worker| scope.spawn(move || write(worker))).collect();
        let mut rows = 0;
        for thread in running {
            rows += thread.join().map_err(|_| "a writer panicked")??;
        }
        Ok(rows)
    })
}

// -- ads and clicks ---------------------------------------------------------------------------------------------------

/// Period and ad.
type Meeting = Tup2<i64, i64>;
/// Shown, campaign, price, place, seen.
type Ad = Tup5<i64, String, F64, i32, bool>;
/// Clicked, user, paid, x, mobile.
type Click = Tup5<i64, String, F64, i32, bool>;
type Shown = Tup3<i64, Ad, Click>;

const ADS: Columns = &[
    ("ad", Kind::Long),
    ("shown", Kind::Long),
    ("campaign", Kind::Text),
    ("price", Kind::Double),
    ("place", Kind::Int),
    ("seen", Kind::Flag),
];
const CLICKS: Columns = &[
    ("ad", Kind::Long),
    ("clicked", Kind::Long),
    ("user", Kind::Text),
    ("paid", Kind::Double),
    ("x", Kind::Int),
    ("mobile", Kind::Flag),
];

/// Ads with the clicks on them that are close in event time; state behind the watermark is given up.
pub struct Interval {
    ads: IndexedZSetHandle<Meeting, Ad>,
    clicks: IndexedZSetHandle<Meeting, Click>,
    watermark: InputHandle<i64>,
    results: OutputHandle<SpineSnapshot<OrdZSet<Shown>>>,
    latest: (i64, i64),
}

impl Query for Interval {
    const STREAMS: &'static [&'static str] = &["ads", "clicks"];

    fn build(config: CircuitConfig, _options: &Options) -> Outcome<(DBSPHandle, Self)> {
        let (circuit, (ads, clicks, watermark, results)) = Runtime::init_circuit(config, |circuit| {
            let (ads, ads_handle) = circuit.add_input_indexed_zset::<Meeting, Ad>();
            let (clicks, clicks_handle) = circuit.add_input_indexed_zset::<Meeting, Click>();
            let (watermark, watermark_handle) = circuit.add_input_stream::<i64>();
            // A batch may take several steps, and only the first of them is told.
            let highest = Slot::new(i64::MIN);
            let watermark = watermark.apply(move |told: &i64| {
                highest.set(highest.get().max(*told));
                TypedBox::new(highest.get())
            });
            // What may still come is no older than the watermark: clicks look for ads of before, ads for clicks of now.
            let (ads, clicks) = (ads.shard(), clicks.shard());
            ads.accumulate_integrate_trace_retain_keys(&watermark, |meeting: &Meeting, now: &i64| {
                meeting.0 >= find_period(now.saturating_sub(AFTER_MS))
            });
            clicks.accumulate_integrate_trace_retain_keys(&watermark, |meeting: &Meeting, now: &i64| {
                meeting.0 >= find_period(*now)
            });
            let results = ads.join_flatmap(&clicks, |meeting, ad, click| {
                let later_ms = click.0 - ad.0;
                let meet = (-BEFORE_MS..=AFTER_MS).contains(&later_ms);
                meet.then(|| Tup3(meeting.1, ad.clone(), click.clone()))
            });
            Ok((ads_handle, clicks_handle, watermark_handle, results.accumulate_output()))
        })?;
        Ok((circuit, Self { ads, clicks, watermark, results, latest: (i64::MIN, i64::MIN) }))
    }

    fn feed(&mut self, streams: &Streams, batch: usize, threads: usize) -> Outcome<usize> {
        // As the batch begins: what is in it may be behind the latest of its own rows.
        self.watermark.set_for_all(self.latest.0.min(self.latest.1).saturating_sub(DELAY_MS));
        let ads = streams.read(0, batch, threads, ADS, |rows| {
            let (ad, shown) = (rows.longs("ad")?, rows.longs("shown")?);
            let (price, place, seen) = (rows.doubles("price")?, rows.ints("place")?, rows.flags("seen")?);
            let campaigns = rows.texts("campaign")?;
            let made = campaigns.into_iter().enumerate().map(|(at, campaign)| {
                let row = Tup5(shown[at], campaign, price[at], place[at], seen[at]);
                Tup2(Tup2(find_period(shown[at]), ad[at]), Tup2(row, 1))
            });
            Ok(made.collect())
        })?;
        let clicks = streams.read(1, batch, threads, CLICKS, |rows| {
            let (ad, clicked) = (rows.longs("ad")?, rows.longs("clicked")?);
            let (paid, x, mobile) = (rows.doubles("paid")?, rows.ints("x")?, rows.flags("mobile")?);
            let users = rows.texts("user")?;
            let mut made = Vec::with_capacity(2 * rows.len());
            for (at, user) in users.into_iter().enumerate() {
                let row = Tup5(clicked[at], user, paid[at], x[at], mobile[at]);
                let (first, last) = (find_period(clicked[at] - AFTER_MS), find_period(clicked[at] + BEFORE_MS));
                for period in first..last {
                    made.push((false, Tup2(Tup2(period, ad[at]), Tup2(row.clone(), 1))));
                }
                made.push((true, Tup2(Tup2(last, ad[at]), Tup2(row, 1))));
            }
            Ok(made)
        })?;
        let rows = count(&ads) + clicks.iter().flatten().filter(|(is_last, _)| *is_last).count();
        let latest_ad = ads.iter().flatten().map(|fed| fed.1.0.0).max();
        let latest_click = clicks.iter().flatten().map(|(_, fed)| fed.1.0.0).max();
        self.latest.0 = self.latest.0.max(latest_ad.unwrap_or(i64::MIN));
        self.latest.1 = self.latest.1.max(latest_click.unwrap_or(i64::MIN));
        hand_over(&self.ads, ads);
        let copies = clicks.into_iter().map(|part| part.into_iter().map(|(_, fed)| fed).collect());
        hand_over(&self.clicks, copies.collect());
        Ok(rows)
    }

    fn write(&self, output: &str, batch: usize, workers: usize) -> Outcome<usize> {
        write_results(&self.results, output, batch, workers)
    }
}

fn find_period(moment_ms: i64) -> i64 {
    moment_ms.div_euclid(PERIOD_MS)
}

impl Joined for Shown {
    const COLUMNS: Columns = &[
        ("ad", Kind::Long),
        ("shown", Kind::Moment),
        ("campaign", Kind::Text),
        ("price", Kind::Double),
        ("place", Kind::Int),
        ("seen", Kind::Flag),
        ("clicked", Kind::Moment),
        ("user", Kind::Text),
        ("paid", Kind::Double),
        ("x", Kind::Int),
        ("mobile", Kind::Flag),
    ];

    fn list_cells<'a>(&'a self, cells: &mut Vec<Cell<'a>>) {
        let Tup3(number, ad, click) = self;
        cells.push(Cell::Long(*number));
        for Tup5(moment, text, amount, place, flag) in [ad, click] {
            cells.extend([
                Cell::Moment(*moment),
                Cell::Text(text),
                Cell::Double(*amount),
                Cell::Int(*place),
                Cell::Flag(*flag),
            ]);
        }
    }
}

// -- EQ5 --------------------------------------------------------------------------------------------------------------

/// Order, number, quantity, price, discount, day, instruction, mode; by supplier.
type Line = Tup8<i64, i32, F64, F64, F64, i32, String, String>;
/// Number, name, balance; by nation.
type Supplier = Tup3<i64, String, F64>;
/// Number and name; by region.
type Nation = Tup2<i64, String>;
/// Supplier's name, nation, balance, nation's name, region, region's name; by supplier.
type Origin = Tup6<String, i64, F64, String, i64, String>;
type Sold = Tup3<i64, Line, Origin>;

const LINEITEM: Columns = &[
    ("l_orderkey", Kind::Long),
    ("l_linenumber", Kind::Int),
    ("l_suppkey", Kind::Long),
    ("l_quantity", Kind::Double),
    ("l_extendedprice", Kind::Double),
    ("l_discount", Kind::Double),
    ("l_shipdate", Kind::Day),
    ("l_shipinstruct", Kind::Text),
    ("l_shipmode", Kind::Text),
];
const SUPPLIER: Columns = &[
    ("s_suppkey", Kind::Long),
    ("s_name", Kind::Text),
    ("s_nationkey", Kind::Long),
    ("s_acctbal", Kind::Double),
];
const NATION: Columns =
    &[("n_nationkey", Kind::Long), ("n_name", Kind::Text), ("n_regionkey", Kind::Long)];
const REGION: Columns = &[("r_regionkey", Kind::Long), ("r_name", Kind::Text)];

/// Lineitems with supplier, nation and region, over all that ever came.
pub struct Eq5 {
    lines: IndexedZSetHandle<i64, Line>,
    suppliers: IndexedZSetHandle<i64, Supplier>,
    nations: IndexedZSetHandle<i64, Nation>,
    regions: IndexedZSetHandle<i64, String>,
    results: OutputHandle<SpineSnapshot<OrdZSet<Sold>>>,
}

impl Query for Eq5 {
    const STREAMS: &'static [&'static str] = &["lineitem", "supplier", "nation", "region"];

    fn build(config: CircuitConfig, options: &Options) -> Outcome<(DBSPHandle, Self)> {
        let is_balanced = options.get("join")? == "balanced";
        let (circuit, built) = Runtime::init_circuit(config, move |circuit| {
            let (lines, lines_handle) = circuit.add_input_indexed_zset::<i64, Line>();
            let (suppliers, suppliers_handle) = circuit.add_input_indexed_zset::<i64, Supplier>();
            let (nations, nations_handle) = circuit.add_input_indexed_zset::<i64, Nation>();
            let (regions, regions_handle) = circuit.add_input_indexed_zset::<i64, String>();
            let nations = nations.join_index(&regions, |region, nation, name| {
                Some((nation.0, Tup3(nation.1.clone(), *region, name.clone())))
            });
            let origins = suppliers.join_index(&nations, |number, supplier, nation| {
                let Tup3(name, region, region_name) = nation.clone();
                let origin = Tup6(supplier.1.clone(), *number, supplier.2, name, region, region_name);
                Some((supplier.0, origin))
            });
            let join = |supplier: &i64, line: &Line, origin: &Origin| Tup3(*supplier, line.clone(), origin.clone());
            let results = match is_balanced {
                true => lines.join_balanced_inner(&origins, join),
                false => lines.join(&origins, join),
            };
            Ok((lines_handle, suppliers_handle, nations_handle, regions_handle, results.accumulate_output()))
        })?;
        let (lines, suppliers, nations, regions, results) = built;
        Ok((circuit, Self { lines, suppliers, nations, regions, results }))
    }

    fn feed(&mut self, streams: &Streams, batch: usize, threads: usize) -> Outcome<usize> {
        let lines = streams.read(0, batch, threads, LINEITEM, |rows| {
            let (orders, numbers) = (rows.longs("l_orderkey")?, rows.ints("l_linenumber")?);
            let (suppliers, days) = (rows.longs("l_suppkey")?, rows.days("l_shipdate")?);
            let (quantities, prices) = (rows.doubles("l_quantity")?, rows.doubles("l_extendedprice")?);
            let discounts = rows.doubles("l_discount")?;
            let texts = rows.texts("l_shipinstruct")?.into_iter().zip(rows.texts("l_shipmode")?);
            let made = texts.enumerate().map(|(at, (instruction, mode))| {
                let row = Tup8(
                    orders[at],
                    numbers[at],
                    quantities[at],
                    prices[at],
                    discounts[at],
                    days[at],
                    instruction,
                    mode,
                );
                Tup2(suppliers[at], Tup2(row, 1))
            });
            Ok(made.collect())
        })?;
        let suppliers = streams.read(1, batch, threads, SUPPLIER, |rows| {
            let (numbers, nations) = (rows.longs("s_suppkey")?, rows.longs("s_nationkey")?);
            let (names, balances) = (rows.texts("s_name")?, rows.doubles("s_acctbal")?);
            let made = names.into_iter().enumerate();
            Ok(made.map(|(at, name)| Tup2(nations[at], Tup2(Tup3(numbers[at], name, balances[at]), 1))).collect())
        })?;
        let nations = streams.read(2, batch, threads, NATION, |rows| {
            let (numbers, regions) = (rows.longs("n_nationkey")?, rows.longs("n_regionkey")?);
            let made = rows.texts("n_name")?.into_iter().enumerate();
            Ok(made.map(|(at, name)| Tup2(regions[at], Tup2(Tup2(numbers[at], name), 1))).collect())
        })?;
        let regions = streams.read(3, batch, threads, REGION, |rows| {
            let made = rows.longs("r_regionkey")?.into_iter().zip(rows.texts("r_name")?);
            Ok(made.map(|(number, name)| Tup2(number, Tup2(name, 1))).collect())
        })?;
        let rows = count(&lines) + count(&suppliers) + count(&nations) + count(&regions);
        hand_over(&self.lines, lines);
        hand_over(&self.suppliers, suppliers);
        hand_over(&self.nations, nations);
        hand_over(&self.regions, regions);
        Ok(rows)
    }

    fn write(&self, output: &str, batch: usize, workers: usize) -> Outcome<usize> {
        write_results(&self.results, output, batch, workers)
    }
}

impl Joined for Sold {
    const COLUMNS: Columns = &[
        ("l_orderkey", Kind::Long),
        ("l_linenumber", Kind::Int),
        ("l_suppkey", Kind::Long),
        ("l_quantity", Kind::Double),
        ("l_extendedprice", Kind::Double),
        ("l_discount", Kind::Double),
        ("l_shipdate", Kind::Day),
        ("l_shipinstruct", Kind::Text),
        ("l_shipmode", Kind::Text),
        ("s_name", Kind::Text),
        ("s_nationkey", Kind::Long),
        ("s_acctbal", Kind::Double),
        ("n_name", Kind::Text),
        ("n_regionkey", Kind::Long),
        ("r_name", Kind::Text),
    ];

    fn list_cells<'a>(&'a self, cells: &mut Vec<Cell<'a>>) {
        let Tup3(supplier, line, origin) = self;
        let Tup8(order, number, quantity, price, discount, day, instruction, mode) = line;
        let Tup6(name, nation, balance, nation_name, region, region_name) = origin;
        cells.extend([
            Cell::Long(*order),
            Cell::Int(*number),
            Cell::Long(*supplier),
            Cell::Double(*quantity),
            Cell::Double(*price),
            Cell::Double(*discount),
            Cell::Day(*day),
            Cell::Text(instruction),
            Cell::Text(mode),
            Cell::Text(name),
            Cell::Long(*nation),
            Cell::Double(*balance),
            Cell::Text(nation_name),
            Cell::Long(*region),
            Cell::Text(region_name),
        ]);
    }
}
