//! Traces of jobs: CSV files with the columns `job_id`, `submission_time`, `duration` and
//! `num_gpu`, as they are or compressed by gzip.
//!
//! Other columns are ignored. Times are in seconds; only differences between submission
//! times matter.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use serde::Deserialize;

/// The largest time in a trace, in seconds: 300 years.
const TIME_MAX: f64 = 1e10;
/// The maximum number of GPUs of a job.
const GPUS_MAX: u32 = 1_000_000;

/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A job of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name in the trace.
    pub id: String,
    /// When it is submitted, in seconds.
    pub submitted: f64,
    /// How long it runs with communication at full speed, in seconds.
    pub duration: f64,
    /// How many GPUs it takes.
    pub gpus: u32,
}

/// The jobs of a trace in the order of submission, then in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The jobs; each has at least one GPU.
    pub jobs: Vec<Job>,
    /// The number of jobs without a GPU, which are left out.
    pub without_gpu: usize,
}

/// A file is not a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It cannot be read.
    #[error("failed to read trace `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not CSV, or lacks a column.
    #[error("failed to read a job; the columns must be job_id, submission_time, duration, num_gpu")]
    Csv(#[source] csv::Error),
    /// A value is invalid.
    #[error("job `{id}` in line {line}: {column} is {value}, must be {must}")]
    Value {
        /// The job.
        id: String,
        /// Its line in the file, from 1.
        line: u64,
        /// The column.
        column: &'static str,
        /// The value.
        value: String,
        /// What is allowed.
        must: &'static str,
    },
    /// There are no jobs to replay.
    #[error("the trace has no job with a GPU")]
    Empty,
}

/// A line of the file.
#[derive(Deserialize)]
struct Row {
    job_id: String,
    submission_time: f64,
    duration: f64,
    num_gpu: u32,
}

impl Trace {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, TraceError> {
        let read = |source| TraceError::Read { path: path.to_owned(), source };
        let mut file = BufReader::new(File::open(path).map_err(read)?);
        if file.fill_buf().map_err(read)?.starts_with(&GZIP) {
            return Self::parse(MultiGzDecoder::new(file));
        }
        Self::parse(file)
    }

    /// Reads the text of a file.
    pub fn parse(text: impl Read) -> Result<Self, TraceError> {
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text);
        let headers = reader.headers().map_err(TraceError::Csv)?.clone();
        let mut trace = Self::default();
        for record in reader.records() {
            let record = record.map_err(TraceError::Csv)?;
            let line = record.position().map_or(0, csv::Position::line);
            let row: Row = record.deserialize(Some(&headers)).map_err(TraceError::Csv)?;
            check(&row, line)?;
            if row.num_gpu == 0 {
                trace.without_gpu += 1;
                continue;
            }
            let Row { job_id, submission_time, duration, num_gpu } = row;
            trace.jobs.push(Job {
                id: job_id,
                submitted: submission_time,
                duration,
                gpus: num_gpu,
            });
        }
        if trace.jobs.is_empty() {
            return Err(TraceError::Empty);
        }
        trace.jobs.sort_by(|a, b| a.submitted.total_cmp(&b.submitted));
        Ok(trace)
    }

    /// Seconds between the first and the last submission.
    pub fn span(&self) -> f64 {
        match (self.jobs.first(), self.jobs.last()) {
            (Some(first), Some(last)) => last.submitted - first.submitted,
            _ => 0.0,
        }
    }

    /// GPU seconds of all jobs.
    pub fn work(&self) -> f64 {
        self.jobs.iter().map(|job| f64::from(job.gpus) * job.duration).sum()
    }

    /// The trace started at another moment: jobs in the first `share` of its span are
    /// moved behind all others. Order, gaps and durations are unchanged.
    #[must_use]
    pub fn begun_at(&self, share: f64) -> Self {
        let (Some(first), span) = (self.jobs.first(), self.span()) else { return self.clone() };
        let start = first.submitted + share * span;
        let mut jobs = self.jobs.clone();
        for job in jobs.iter_mut().filter(|job| job.submitted < start) {
            job.submitted += span;
        }
        jobs.sort_by(|a, b| a.submitted.total_cmp(&b.submitted));
        Self { jobs, ..*self }
    }

    /// The number of jobs per number of GPUs.
    pub fn mix(&self) -> BTreeMap<u32, usize> {
        let mut mix = BTreeMap::new();
        for job in &self.jobs {
            *mix.entry(job.gpus).or_default() += 1;
        }
        mix
    }
}

fn check(row: &Row, line: u64) -> Result<(), TraceError> {
    let Row { job_id, submission_time, duration, num_gpu } = row;
    let (column, value, must) = if !(-TIME_MAX..=TIME_MAX).contains(submission_time) {
        ("submission_time", submission_time.to_string(), "seconds up to 1e10")
    } else if !(0.0..=TIME_MAX).contains(duration) {
        ("duration", duration.to_string(), "seconds from 0 to 1e10")
    } else if *num_gpu > GPUS_MAX {
        ("num_gpu", num_gpu.to_string(), "at most 1000000")
    } else {
        return Ok(());
    };
    Err(TraceError::Value { id: job_id.clone(), line, column, value, must })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::fs;
    use std::io::Write as _;

    const TEXT: &str = "job_id,submission_time,duration,num_gpu\nb,20,5,8\na,10,7.5,1\nc,20,1,0\n";

    #[test]
    fn jobs_are_in_the_order_of_submission() {
        let trace = Trace::parse(TEXT.as_bytes()).unwrap();
        let ids: Vec<_> = trace.jobs.iter().map(|job| job.id.as_str()).collect();
        assert_eq!(ids, ["a", "b"]);
        assert_eq!((trace.span(), trace.work(), trace.without_gpu), (10.0, 47.5, 1));
        assert_eq!(trace.mix(), BTreeMap::from([(1, 1), (8, 1)]));
    }

    #[test]
    fn a_compressed_trace_equals_the_plain_one() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, packed) = (folder.path().join("t.csv"), folder.path().join("t.csv.gz"));
        fs::write(&plain, TEXT).unwrap();
        let mut encoder = GzEncoder::new(File::create(&packed).unwrap(), Compression::default());
        encoder.write_all(TEXT.as_bytes()).unwrap();
        encoder.finish().unwrap();
        assert_eq!(Trace::load(&plain).unwrap(), Trace::load(&packed).unwrap());
    }

    #[test]
    fn a_trace_begun_later_has_the_earlier_jobs_at_its_end() {
        let text = "job_id,submission_time,duration,num_gpu\na,0,1,1\nb,40,2,2\nc,100,3,4\n";
        let trace = Trace::parse(text.as_bytes()).unwrap();
        let begun = trace.begun_at(0.3);
        let times: Vec<_> = begun.jobs.iter().map(|job| (job.id.as_str(), job.submitted)).collect();
        assert_eq!(times, [("b", 40.0), ("a", 100.0), ("c", 100.0)]);
        assert_eq!(trace.begun_at(0.0), trace);
    }

    #[test]
    fn the_order_of_columns_is_free_and_further_columns_are_ignored() {
        let text = "num_gpu,user,duration,job_id,submission_time\n2,x,3,a,4\n";
        let job = Job { id: "a".to_owned(), submitted: 4.0, duration: 3.0, gpus: 2 };
        assert_eq!(Trace::parse(text.as_bytes()).unwrap().jobs, [job]);
    }

    #[test]
    fn invalid_values_are_refused_with_their_line() {
        for (row, part) in [
            ("a,0,-1,1", "line 2: duration is -1"),
            ("a,nan,1,1", "line 2: submission_time is NaN"),
            ("a,0,inf,1", "line 2: duration is inf"),
            ("a,0,1,4000000", "line 2: num_gpu is 4000000"),
        ] {
            let text = format!("job_id,submission_time,duration,num_gpu\n{row}\n");
            let error = Trace::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        for text in [
            "",
            "job_id,submission_time,duration\na,1,2\n",
            "job_id,submission_time,duration,num_gpu\n",
        ] {
            assert!(Trace::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
