// Reads the flags that say how a job is submitted, as opposed to what it computes.
#include "client/commands/submit_options.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/commands/selector.h"
#include "common/base/duration.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

// Reads "100" or "100%8": the size of an array, and how many of its jobs may run at once.
absl::Status TakeArray(absl::string_view text, v1::SubmitOptions& options) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('%', 1));
  int32_t size = 0;
  int32_t parallel = 0;
  const bool has_form =
      absl::SimpleAtoi(parts[0], &size) && size >= 1 &&
      (parts.size() == 1 || (absl::SimpleAtoi(parts[1], &parallel) && parallel >= 1));
  if (!has_form) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--array '", text, "' is not a size; write 100, or 100%8 for at most 8 of them at a time"));
  }
  options.set_array_size(size);
  options.set_array_parallel(parallel);
  return absl::OkStatus();
}

}  // namespace

void DeclareSpecFlags(client::Flags& flags, SpecFlags& options) {
  flags.Repeated("--set", options.set,
                 "Change of the spec, PATH=VALUE, such as train.seed=2 or "
                 "model.layers.stack[0].conv2d.channels=64; may be repeated");
  flags
      .Value("--devices", options.devices,
             "Number of devices; 0 for a program without one (devices.count)")
      .Range(0, kDevicesMax);
  flags
      .Value("--cpus", options.cpus,
             "Processors of each rank, in place of the share of its device (resources.cpus)")
      .Range(1, kDevicesMax);
  flags.Value("--memory", options.memory,
              "Memory of each rank, such as 64GiB, in place of the share of its device "
              "(resources.memory)");
  flags.Value("--time-limit", options.time_limit,
              "Run time after which the job is stopped, such as 8h (time_limit)");
  flags.Value("--idle-limit", options.idle_limit,
              "Time after which a program that does nothing is stopped, such as 1h (idle_limit)");
  flags.Value("--isolation", options.isolation,
              "How strictly a program is kept apart from its host, at least: process, cgroup, "
              "sandbox or container (program.isolation)");
  flags.Repeated("--outputs", options.outputs,
                 "Files of the program that are kept with the job, such as 'results/**'; may be "
                 "repeated (outputs)");
  flags.Value("--name", options.name, "Name of the job");
  flags.Repeated(
      "--notify", options.notify,
      "Mail address or URL of a webhook that gets word when the job ends or fails; one of "
      "each may be given");
  flags.Value("--code", options.code,
              "Folder with the program's code, which travels with the job as it is now "
              "(program.code)");
  flags.Value("--project", options.project, "Project that the job is accounted to");
  flags.Value("--priority", options.priority, "Larger goes first, -1000 to 1000");
  flags.Value("--elastic", options.elastic,
              "Range of devices that will do: 2-8 (devices.min, devices.max)");
}

void DeclareStartFlags(client::Flags& flags, SubmitFlags& options) {
  flags.Value("--begin", options.begin, "Do not start before: 18:00, +2h, 2026-11-21T18:00:00Z");
  flags.Value("--reservation", options.reservation, "Run on the devices of this reservation only");
  flags.Switch("--wait-for-devices", options.wait_for_devices,
               "Queue it even if no known worker has such devices, instead of refusing it");
}

void DeclareSubmitFlags(client::Flags& flags, SubmitFlags& options) {
  DeclareSpecFlags(flags, options.spec);
  flags.Value("--from", options.from,
              "Checkpoint to start from: 12/600, 12/best, a job for its newest, or "
              "s3://BUCKET/FOLDER/checkpoints/12/600 of another server");
  flags.Value("--request-id", options.request_id,
              "The same request sent again gives the same job (chosen at random otherwise)");
  flags.Switch("--dry-run", options.dry_run, "Check and show the job, but do not submit it");
  flags.Value(
      "--array", options.array,
      "Number of jobs of this spec, each with a seed of its own ($TRAINYARD_ARRAY_INDEX for "
      "programs): 100, or 100%8 for at most 8 at a time");
  flags.Repeated("--after", options.after, "Start when this job has ended; may be repeated");
  flags.Repeated("--after-ok", options.after_ok,
                 "Start when this job has succeeded; may be repeated");
  DeclareStartFlags(flags, options);
}

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  google::protobuf::Timestamp proto;
  proto.set_seconds(absl::ToUnixSeconds(time));
  return proto;
}

absl::StatusOr<absl::Time> ParseMoment(absl::string_view text, absl::Time now, absl::Time base) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "+")) {
    TY_ASSIGN_OR_RETURN(const absl::Duration after, ParseDuration(rest));
    return base + after;
  }
  const absl::TimeZone zone = absl::LocalTimeZone();
  absl::Time time;
  for (const char* form : {"%Y-%m-%d%ET%H:%M:%E*S%Ez", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M"}) {
    if (absl::ParseTime(form, text, zone, &time, nullptr)) return time;
  }
  // A time of day means the next such moment, today or tomorrow.
  const absl::CivilDay today = absl::ToCivilDay(now, zone);
  for (int day = 0; day < 2; ++day) {
    const std::string dated = absl::StrCat(absl::FormatCivilTime(today + day), " ", text);
    if (!absl::ParseTime("%Y-%m-%d %H:%M", dated, zone, &time, nullptr)) break;
    if (time > now) return time;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is not a time; write 18:00, +2h, '2026-11-21 18:00' or 2026-11-21T18:00:00Z"));
}

absl::StatusOr<v1::SubmitOptions> SubmitOptionsOf(const Context& context, link::ServerLink& link,
                                                  const SubmitFlags& given) {
  v1::SubmitOptions options;
  if (!given.array.empty()) TY_RETURN_IF_ERROR(TakeArray(given.array, options));
  if (!given.after.empty()) {
    TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ResolveSelectors(link, given.after));
    options.mutable_after()->Add(names.begin(), names.end());
  }
  if (!given.after_ok.empty()) {
    TY_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        ResolveSelectors(link, given.after_ok));
    options.mutable_after_ok()->Add(names.begin(), names.end());
  }
  if (!given.begin.empty()) {
    const absl::Time now = context.clock.Now();
    TY_ASSIGN_OR_RETURN(const absl::Time begin, ParseMoment(given.begin, now, now));
    *options.mutable_begin_time() = ToTimestamp(begin);
  }
  options.set_reservation(given.reservation);
  options.set_wait_for_devices(given.wait_for_devices);
  return options;
}

}  // namespace trainyard::commands
