//! `ib_write_bw` of perftest between two pods: what they run, and what it prints.

use super::measured::{Measured, OutputError};

/// Size of a message by default, in bytes.
pub(super) const BYTES: u64 = 1 << 20;

/// The script of both containers. It uses the first RDMA device of the claim, which the driver
/// names in `UCX_NET_DEVICES`. A server runs until it is deleted. A client retries if the server
/// may still be starting, if nothing arrived, or if perftest could not measure the CPU frequency,
/// on which its results depend. The result is the termination message, so that the user needs no
/// right to read logs.
pub(super) const SCRIPT: &str = r#"device=${UCX_NET_DEVICES%%:*}
[ -n "$device" ] || device=$(ls /sys/class/infiniband | head -n 1)
measure() { ib_write_bw -d "$device" -s "$BYTES" -D "$SECONDS_LONG" -F --report_gbits "$@" 2>&1; }
if [ -z "$SERVER" ]; then while :; do measure "$@"; sleep 1; done; fi
for attempt in 1 2 3 4 5 6 7 8 9 10; do
  if result=$(measure "$@" "$SERVER") &&
    ! printf '%s\n' "$result" | grep -Eq 'Correlation coefficient|^ *[0-9]+ +0 '; then status=0; break; fi
  status=1; sleep 3
done
printf '%s\n' "$result" | tail -c 4000 | tee /dev/termination-log
exit $status"#;

/// The heading of the table, with the unit in brackets (`RESULT_FMT` and its kin in
/// `src/perftest_resources.h`).
const AVERAGE: &str = "BW average[";

/// Bits of a unit. What perftest calls MB are 2^20 bytes (`print_report_bw`), which newer
/// versions spell `MiB`.
fn bits(unit: &str) -> Option<f64> {
    match unit {
        "Gb/sec" => Some(1e9),
        "MB/sec" | "MiB/sec" => Some(8.0 * 1_048_576.0),
        _ => None,
    }
}

/// The last row of the table: of several sizes the largest. Warnings may be printed between the
/// heading and the rows.
pub(super) fn parse(text: &str) -> Result<Measured, OutputError> {
    let mut lines = text.lines();
    let heading = lines.find(|line| line.trim_start().starts_with("#bytes"));
    let heading = heading.ok_or(OutputError::NoTable)?;
    let (_, unit) = heading.split_once(AVERAGE).ok_or(OutputError::NoTable)?;
    let unit = unit.split(']').next().unwrap_or_default();
    let bits = bits(unit).ok_or_else(|| OutputError::Unit(unit.to_owned()))?;
    lines
        .filter_map(|line| {
            let mut cells = line.split_whitespace();
            let bytes = cells.next()?.parse().ok()?;
            let _iterations: u64 = cells.next()?.parse().ok()?;
            let _peak: f64 = cells.next()?.parse().ok()?;
            let average: f64 = cells.next()?.parse().ok()?;
            Some(Measured { bytes, gbps: average * bits / 1e9 })
        })
        .next_back()
        .ok_or(OutputError::NoResult)?
        .checked()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(heading: &str, rows: &str) -> String {
        let line = "-".repeat(87);
        format!(
            "{line}\n                    RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : \
             mlx5_0\n Mtu             : 4096[B]\n{line}\n{heading}\n{rows}{line}\n"
        )
    }

    const GIGABITS: &str =
        " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]";
    const MEGABYTES: &str =
        " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]";

    /// Rows posted by others, as printed: linux-rdma/perftest issues 273 and 65 (65 in MB),
    /// Ubuntu's compliance test of InfiniBand, one with a warning in between, and the end of a test
    /// of all sizes. The last column, messages per second, confirms the values.
    #[test]
    fn output_of_real_machines_is_parsed() {
        let cases = [
            (GIGABITS, " 8          224958464        0.00               0.48   \t\t   7.498617\n"),
            (MEGABYTES, " 1024       1000             0.00               5544.28\t\t   5.677340\n"),
            (
                GIGABITS,
                " 65536      5000             51.05              51.04              0.097356\n",
            ),
            (
                GIGABITS,
                "Conflicting CPU frequency values detected: 1500.000000 != 3300.016000. CPU \
                 Frequency is not max.\n 65536      560845           0.00               98.02  \
                 \t\t     0.186950\n",
            ),
            (
                GIGABITS,
                " 2048       5000             129.04             126.20             7.702863\n \
                 4096       5000             188.76             188.56             5.754307\n",
            ),
        ];
        for (heading, rows) in cases {
            let Measured { bytes, gbps } = parse(&table(heading, rows)).unwrap();
            let millions: f64 = rows.split_whitespace().last().unwrap().parse().unwrap();
            let last = rows.lines().last().unwrap();
            assert_eq!(last.split_whitespace().next(), Some(bytes.to_string().as_str()), "{rows}");
            let expected = millions * 8.0 * f64::from(u32::try_from(bytes).unwrap()) / 1e3;
            assert!((gbps / expected - 1.0).abs() < 1e-3, "{gbps} is not {expected}: {rows}");
        }
    }

    #[test]
    fn output_without_a_result_is_an_error() {
        let parse = |text: &str| parse(text).unwrap_err();
        assert_eq!(parse(""), OutputError::NoTable);
        assert_eq!(parse("Couldn't connect to 10.0.0.1:18515\n"), OutputError::NoTable);
        assert_eq!(parse(&table(GIGABITS, "")), OutputError::NoResult);
        assert_eq!(parse(&table(GIGABITS, " 65536 5000 0.00 0.00 0.00\n")), OutputError::NoResult);
        assert_eq!(parse(&table(GIGABITS, " 65536 5000 nan nan 0.00\n")), OutputError::NoResult);
        let other = GIGABITS.replace("Gb/sec", "furlong");
        assert_eq!(parse(&table(&other, "")), OutputError::Unit("furlong".to_owned()));
    }
}
