// Reads the JSON files of a run directory. Users' programs write some of them, and supervisor and
// ranks of another version the others.
#include "common/base/check.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/metrics.h"
#include "worker/run_dir/records.h"

namespace trainyard::fuzz::run_records {
namespace {

// Checks that a record that was read is written and read again without a change.
template <typename Decode, typename Encode>
void CheckRoundTrip(absl::string_view text, Decode decode, Encode encode) {
  const auto record = decode(text, "input");
  if (!record.ok()) return;
  const std::string written = encode(*record);
  const auto again = decode(written, "written");
  TY_CHECK_OK(again.status());
  TY_CHECK(encode(*again) == written);
}

std::string EncodePoint(const run_dir::MetricPoint& point) {
  std::string line;
  run_dir::AppendMetricLine(point, line);
  return line;
}

std::string EncodeAssignment(const run_dir::Assignment& assignment) {
  const auto text = run_dir::EncodeAssignment(assignment);
  TY_CHECK_OK(text.status());
  return *text;
}

// The first letter says which file it is.
void Run(absl::string_view bytes) {
  Input input(bytes);
  const uint8_t kind = input.Byte();
  const absl::string_view text = input.Rest();
  switch (kind) {
    case 'p':
      return CheckRoundTrip(text, run_dir::DecodeProgress, run_dir::EncodeProgress);
    case 'r':
      return CheckRoundTrip(text, run_dir::DecodeRankResult, run_dir::EncodeRankResult);
    case 'x':
      return CheckRoundTrip(text, run_dir::DecodeRankExit, run_dir::EncodeRankExit);
    case 'e':
      return CheckRoundTrip(text, run_dir::DecodeAttemptExit, run_dir::EncodeAttemptExit);
    case 's':
      return CheckRoundTrip(text, run_dir::DecodeSupervisorRecord, run_dir::EncodeSupervisorRecord);
    case 'm':
      return CheckRoundTrip(text, run_dir::DecodeMetricLine, EncodePoint);
    case 'l':
      return CheckRoundTrip(text, run_dir::DecodeLease, run_dir::EncodeLease);
    case 't':
      return CheckRoundTrip(text, run_dir::DecodeStopRequest, run_dir::EncodeStopRequest);
    default:
      return CheckRoundTrip(text, run_dir::DecodeAssignment, EncodeAssignment);
  }
}

const Registration kTarget({.name = "run_records", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::run_records
