// Parses what people write on command lines and in specs: durations, sizes, intervals, labels,
// addresses, names, selections, moments. What is understood is written and read again.
#include "client/commands/selector.h"
#include "client/commands/submit_options.h"
#include "common/base/check.h"
#include "common/base/duration.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/interfaces.h"
#include "common/base/labels.h"
#include "common/base/processes.h"
#include "common/base/strings.h"
#include "common/base/worker_name.h"
#include "common/rpc/address.h"
#include "common/spec/byte_size.h"
#include "common/spec/interval.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"
#include "worker/run_dir/paths.h"
#include "worker/run_dir/rendezvous.h"

namespace trainyard::fuzz::texts {
namespace {

void ParseQuantities(absl::string_view text) {
  if (const auto duration = ParseDuration(text); duration.ok()) {
    TY_CHECK(*duration >= absl::ZeroDuration() && *duration < absl::InfiniteDuration());
    (void)DurationText(*duration);
  }
  if (const auto size = spec::ParseByteSize(text); size.ok()) {
    const auto again = spec::ParseByteSize(spec::ByteSizeText(*size));
    TY_CHECK_OK(again.status());
    TY_CHECK(again->bytes() == size->bytes());
  }
  if (const auto interval = spec::ParseInterval(text); interval.ok()) {
    const std::string written = spec::IntervalText(*interval);
    const auto again = spec::ParseInterval(written);
    TY_CHECK_OK(again.status());
    TY_CHECK(spec::IntervalText(*again) == written);
  }
}

void ParseNames(absl::string_view text) {
  if (const auto job = ParseJobName(text); job.ok()) TY_CHECK(JobName(*job) == text);
  if (const auto attempt = ParseAttemptName(text); attempt.ok()) {
    TY_CHECK(AttemptName(*attempt) == text);
  }
  if (const auto id = ParseCheckpointName(text); id.ok()) {
    TY_CHECK(CheckpointName(id->job, id->step) == text);
  }
  if (const auto worker = ParseWorkerName(text); worker.ok()) TY_CHECK(WorkerName(*worker) == text);
  if (const auto label = ParseLabel(text); label.ok()) {
    TY_CHECK_OK(CheckLabel(label->first, label->second));
  }
  if (const auto address = rpc::ParseAddress(text); address.ok()) {
    const auto again = rpc::ParseAddress(address->ToString());
    TY_CHECK_OK(again.status());
    TY_CHECK(again->ToString() == address->ToString());
  }
  const std::string name = WorkerNameOf(text);
  TY_CHECK(!name.empty() && name.size() <= 63 && WorkerNameOf(name) == name);
  (void)HashDigits(text);
  (void)run_dir::CheckRendezvousKey(text);
  (void)run_dir::IsTemporaryName(text);
}

void ShowText(absl::string_view text) {
  const std::string plain = PlainText(std::string(text), 40);
  TY_CHECK(plain.size() <= 40);
  if (IsUtf8(text)) TY_CHECK(IsUtf8(plain));
  TY_CHECK(IsUtf8(JsonQuote(text)));
  (void)NearestWord(text, {"train.global_batch", "optimizer", "lr"});
}

void Run(absl::string_view text) {
  ParseQuantities(text);
  ParseNames(text);
  ShowText(text);
  if (const auto parts = commands::ParseSelector(text); parts.ok()) {
    for (const commands::Selection& part : *parts) {
      TY_CHECK(!part.name.empty() || part.back >= 0 ||
               (part.first >= 1 && part.last >= part.first));
    }
  }
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  (void)commands::ParseMoment(text, now, now);
  (void)ParseProcessStat(text);
  (void)ChooseInterface(text, {{.interface = "eth0", .address = "10.1.0.2"},
                               {.interface = "eth1", .address = "fd00::2"}});
}

// The distance of two words takes a row of numbers for each.
const Registration kTarget({.name = "texts", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::texts
