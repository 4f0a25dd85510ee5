//! Files in and out: rows of one type for each stream, whatever their format, and results as Parquet.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayBuilder, ArrayRef, AsArray, BooleanBuilder, Date32Builder, Float64Builder, Int32Builder,
    Int64Builder, RecordBatch, StringBuilder, TimestampMillisecondBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Field, Float64Type, Int32Type, Int64Type, Schema, SchemaRef, TimeUnit,
};
use dbsp::algebra::F64;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use crate::{Options, Outcome};

const ROWS_AT_ONCE: usize = 65_536;

/// The types of columns: those of files, and moments, which are milliseconds in files and times in results.
#[derive(Clone, Copy)]
pub enum Kind {
    Long,
    Int,
    Double,
    Text,
    Flag,
    Day,
    Moment,
}

pub type Columns = &'static [(&'static str, Kind)];

impl Kind {
    fn in_files(self) -> DataType {
        match self {
            Kind::Long | Kind::Moment => DataType::Int64,
            Kind::Int => DataType::Int32,
            Kind::Double => DataType::Float64,
            Kind::Text => DataType::Utf8,
            Kind::Flag => DataType::Boolean,
            Kind::Day => DataType::Date32,
        }
    }

    fn in_results(self) -> DataType {
        match self {
            Kind::Moment => DataType::Timestamp(TimeUnit::Millisecond, None),
            other => other.in_files(),
        }
    }
}

/// The files of all streams, in the order of their names.
pub struct Streams {
    format: String,
    files_per_batch: usize,
    files: Vec<Vec<PathBuf>>,
}

impl Streams {
    pub fn find(options: &Options, names: &[&str]) -> Outcome<Self> {
        let folder = Path::new(options.get("input")?);
        let mut files = vec![];
        for name in names {
            let mut found = vec![];
            for entry in std::fs::read_dir(folder.join(name))? {
                let entry = entry?;
                if entry.file_name().to_string_lossy().starts_with("part-") {
                    found.push(entry.path());
                }
            }
            found.sort();
            files.push(found);
        }
        Ok(Self {
            format: options.get("format")?.to_owned(),
            files_per_batch: options.count("files-per-batch")?,
            files,
        })
    }

    /// Each batch takes so many files of each stream as long as it has some.
    pub fn count_batches(&self) -> usize {
        let most = self.files.iter().map(Vec::len).max().unwrap_or(0);
        most.div_ceil(self.files_per_batch)
    }

    /// Read a batch's files of a stream on some threads; what is made of their rows comes back file by file.
    pub fn read<T: Send>(
        &self,
        stream: usize,
        batch: usize,
        threads: usize,
        columns: Columns,
        make: impl Fn(&Rows) -> Outcome<Vec<T>> + Sync,
    ) -> Outcome<Vec<Vec<T>>> {
        let first = (batch * self.files_per_batch).min(self.files[stream].len());
        let last = (first + self.files_per_batch).min(self.files[stream].len());
        let chosen = &self.files[stream][first..last];
        let read = |path: &PathBuf| -> Outcome<Vec<T>> {
            let mut rows = vec![];
            for part in self.open(path, columns)? {
                rows.append(&mut make(&Rows(part?))?);
            }
            Ok(rows)
        };
        std::thread::scope(|scope| {
            let running: Vec<_> = chosen
                .chunks(chosen.len().div_ceil(threads).max(1))
                .map(|some| scope.spawn(|| some.iter().map(read).collect::<Outcome<Vec<_>>>()))
                .collect();
            let mut all = vec![];
            for thread in running {
                all.append(&mut thread.join().map_err(|_| "a reader panicked")??);
            }
            Ok(all)
        })
    }

    fn open(
        &self,
        path: &Path,
        columns: Columns,
    ) -> Outcome<Box<dyn Iterator<Item = Result<RecordBatch, arrow::error::ArrowError>>>> {
        let file = File::open(path)?;
        if self.format == "json" {
            let schema = make_schema(columns, Kind::in_files);
            let reader = arrow::json::ReaderBuilder::new(schema).with_batch_size(ROWS_AT_ONCE);
            return Ok(Box::new(reader.build(BufReader::with_capacity(1 << 20, file))?));
        }
        let reader = ParquetRecordBatchReaderBuilder::try_new(file)?.with_batch_size(ROWS_AT_ONCE);
        Ok(Box::new(reader.build()?))
    }
}

fn make_schema(columns: Columns, find: impl Fn(Kind) -> DataType) -> SchemaRef {
    let fields: Vec<_> =
        columns.iter().map(|(name, kind)| Field::new(*name, find(*kind), true)).collect();
    Arc::new(Schema::new(fields))
}

/// Some rows of a file, by column.
pub struct Rows(RecordBatch);

impl Rows {
    pub fn len(&self) -> usize {
        self.0.num_rows()
    }

    pub fn longs(&self, name: &str) -> Outcome<Vec<i64>> {
        Ok(self.column(name, Kind::Long)?.as_primitive::<Int64Type>().values().to_vec())
    }

    pub fn ints(&self, name: &str) -> Outcome<Vec<i32>> {
        Ok(self.column(name, Kind::Int)?.as_primitive::<Int32Type>().values().to_vec())
    }

    pub fn days(&self, name: &str) -> Outcome<Vec<i32>> {
        Ok(self.column(name, Kind::Day)?.as_primitive::<Date32Type>().values().to_vec())
    }

    pub fn doubles(&self, name: &str) -> Outcome<Vec<F64>> {
        let found = self.column(name, Kind::Double)?;
        Ok(found.as_primitive::<Float64Type>().values().iter().map(|one| F64::new(*one)).collect())
    }

    pub fn texts(&self, name: &str) -> Outcome<Vec<String>> {
        let found = self.column(name, Kind::Text)?;
        Ok(found.as_string::<i32>().iter().map(|one| one.unwrap_or("").to_owned()).collect())
    }

    pub fn flags(&self, name: &str) -> Outcome<Vec<bool>> {
        Ok(self.column(name, Kind::Flag)?.as_boolean().values().iter().collect())
    }

    fn column(&self, name: &str, kind: Kind) -> Outcome<ArrayRef> {
        let found = self.0.column_by_name(name).ok_or_else(|| format!("there is no column {name}"))?;
        if found.null_count() > 0 {
            return Err(format!("{name} has nulls, which no stream of the bench has").into());
        }
        Ok(cast(found, &kind.in_files())?)
    }
}

/// One value of a result.
pub enum Cell<'a> {
    Long(i64),
    Int(i32),
    Double(F64),
    Text(&'a str),
    Flag(bool),
    Day(i32),
    Moment(i64),
}

/// A row of results, as its columns.
pub trait Joined {
    const COLUMNS: Columns;

    fn list_cells<'a>(&'a self, cells: &mut Vec<Cell<'a>>);
}

/// One Parquet file of results, with the codec that the others use, too.
pub struct ResultFile {
    schema: SchemaRef,
    writer: ArrowWriter<File>,
    builders: Vec<Box<dyn ArrayBuilder>>,
}

impl ResultFile {
    pub fn create<R: Joined>(path: &Path) -> Outcome<Self> {
        let schema = make_schema(R::COLUMNS, Kind::in_results);
        let settings = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = ArrowWriter::try_new(File::create(path)?, schema.clone(), Some(settings))?;
        let builders = R::COLUMNS.iter().map(|(_, kind)| make_builder(*kind)).collect();
        Ok(Self { schema, writer, builders })
    }

    pub fn push<R: Joined>(&mut self, row: &R) -> Outcome<()> {
        let mut cells = Vec::with_capacity(self.builders.len());
        row.list_cells(&mut cells);
        for (builder, cell) in self.builders.iter_mut().zip(cells) {
            append(builder.as_mut(), cell);
        }
        if self.builders[0].len() == ROWS_AT_ONCE { self.flush() } else { Ok(()) }
    }

    pub fn close(mut self) -> Outcome<()> {
        self.flush()?;
        self.writer.close()?;
        Ok(())
    }

    fn flush(&mut self) -> Outcome<()> {
        let columns = self.builders.iter_mut().map(|builder| builder.finish()).collect();
        self.writer.write(&RecordBatch::try_new(self.schema.clone(), columns)?)?;
        Ok(())
    }
}

fn make_builder(kind: Kind) -> Box<dyn ArrayBuilder> {
    match kind {
        Kind::Long => Box::new(Int64Builder::new()),
        Kind::Int => Box::new(Int32Builder::new()),
        Kind::Double => Box::new(Float64Builder::new()),
        Kind::Text => Box::new(StringBuilder::new()),
        Kind::Flag => Box::new(BooleanBuilder::new()),
        Kind::Day => Box::new(Date32Builder::new()),
        Kind::Moment => Box::new(TimestampMillisecondBuilder::new()),
    }
}

fn append(builder: &mut dyn ArrayBuilder, cell: Cell) {
    fn own<B: ArrayBuilder>(builder: &mut dyn ArrayBuilder) -> &mut B {
        builder.as_any_mut().downcast_mut().expect("cells come in the order of the columns")
    }
    match cell {
        Cell::Long(value) => own::<Int64Builder>(builder).append_value(value),
        Cell::Int(value) => own::<Int32Builder>(builder).append_value(value),
        Cell::Double(value) => own::<Float64Builder>(builder).append_value(value.into_inner()),
        Cell::Text(value) => own::<StringBuilder>(builder).append_value(value),
        Cell::Flag(value) => own::<BooleanBuilder>(builder).append_value(value),
        Cell::Day(value) => own::<Date32Builder>(builder).append_value(value),
        Cell::Moment(value) => own::<TimestampMillisecondBuilder>(builder).append_value(value),
    }
}
