// Reads event files of TensorBoard, which programs of users write.
#include <algorithm>
#include <vector>

#include "common/base/check.h"
#include "tests/fuzz/target.h"
#include "worker/program/event_records.h"

namespace trainyard::fuzz::event_file {
namespace {

// A mutation hardly ever has the right CRC, so the input is taken for a file of records and for an
// event.
void Run(absl::string_view input) {
  std::vector<program::Scalar> scalars;
  (void)program::ReadScalars(input, scalars);
  absl::string_view rest = input;
  while (true) {
    const program::Record record = program::NextRecord(rest, input.size());
    using Kind = program::Record::Kind;
    if (record.kind == Kind::kTorn || record.kind == Kind::kUnreadable) break;
    TY_CHECK(record.bytes > 0);
    if (record.kind == Kind::kWhole) {
      TY_CHECK(record.bytes <= rest.size() && record.event.size() < record.bytes);
      (void)program::ReadScalars(record.event, scalars);
    }
    rest.remove_prefix(std::min<uint64_t>(record.bytes, rest.size()));
  }
  // Each scalar has a tag of its own bytes.
  TY_CHECK(scalars.size() <= 2 * input.size());
}

const Registration kTarget({.name = "event_file", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::event_file
