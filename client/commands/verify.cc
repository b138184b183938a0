// verify runs a job again from what is recorded of it, and says whether the same came out.
#include <cmath>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/commands/follow.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

using output::Table;

struct VerifyOptions {
  std::string job;
  std::string tolerance;
  std::optional<int> devices;
  bool detach = false;
  bool list = false;
};

bool IsReproduced(v1::VerificationResult result) {
  return result == v1::VERIFICATION_RESULT_IDENTICAL ||
         result == v1::VERIFICATION_RESULT_EQUIVALENT;
}

std::string ResultText(v1::VerificationResult result) {
  return v1::VerificationResult_Name(result).substr(sizeof("VERIFICATION_RESULT_") - 1);
}

std::string ResultCell(const Context& context, v1::VerificationResult result) {
  const absl::string_view style = IsReproduced(result)                        ? "32"
                                  : result == v1::VERIFICATION_RESULT_PENDING ? "33"
                                                                              : "31";
  return context.terminal.Style(style, ResultText(result));
}

std::string RelativeText(const v1::MetricComparison& metric) {
  if (metric.difference() == 0) return "none";
  if (!std::isfinite(metric.difference())) return "infinite";
  return absl::StrCat(output::NumberText(100 * metric.difference()), "%");
}

void PrintComparisons(const Context& context, const v1::Verification& verification,
                      const std::string& first) {
  if (verification.metrics().empty()) return;
  const auto right = Table::Align::kRight;
  Table table({{"METRIC"},
               {"POINTS", right},
               {first, right},
               {verification.job(), right},
               {"DIFFERENCE", right},
               {"FIRST STEP", right}});
  for (const v1::MetricComparison& metric : verification.metrics()) {
    table.AddRow({metric.name(), absl::StrCat(metric.points()), output::NumberText(metric.left()),
                  output::NumberText(metric.right()), RelativeText(metric),
                  metric.difference() == 0 ? "" : absl::StrCat(metric.first_step())});
  }
  context.out << table.Render() << "\n";
}

// Prints the verdict and the reasons below it.
void PrintVerification(const Context& context, const v1::Verification& verification,
                       const std::string& first) {
  PrintComparisons(context, verification, first);
  context.out << verification.job() << " is " << ResultCell(context, verification.result());
  switch (verification.result()) {
    case v1::VERIFICATION_RESULT_IDENTICAL:
    case v1::VERIFICATION_RESULT_EQUIVALENT:
      context.out << " to " << first;
      break;
    case v1::VERIFICATION_RESULT_DIFFERENT:
      context.out << " from " << first;
      break;
    default:
      break;
  }
  if (verification.result() == v1::VERIFICATION_RESULT_EQUIVALENT ||
      verification.result() == v1::VERIFICATION_RESULT_DIFFERENT) {
    context.out << " (tolerance " << output::NumberText(100 * verification.tolerance()) << "%)";
  }
  context.out << "\n";
  for (const std::string& reason : verification.reasons()) context.out << "  " << reason << "\n";
  context.out << std::flush;
}

absl::StatusOr<v1::ListVerificationsResponse> FetchVerifications(link::ServerLink& link,
                                                                 const std::string& job) {
  v1::ListVerificationsRequest request;
  request.set_name(job);
  return link.Call(&v1::JobService::Stub::ListVerifications, request);
}

Result ListVerified(const Context& context, link::ServerLink& link, const std::string& job) {
  TY_ASSIGN_OR_RETURN(const v1::ListVerificationsResponse response, FetchVerifications(link, job));
  std::vector<std::string> names;
  for (const v1::Verification& one : response.verifications()) names.push_back(one.job());
  if (PrintMessages(context, response.verifications(), names)) return link::kOk;
  if (response.verifications().empty()) {
    context.Say(absl::StrCat(job, " was never run again; `trainyard verify ",
                             output::ShortName(job), "` does so"));
    return link::kOk;
  }
  Table table({{"JOB", Table::Align::kRight},
               {"RESULT"},
               {"DEVICES"},
               {"WORKER"},
               {"USER"},
               {"ENDED"},
               {"WHY"}});
  for (const v1::Verification& one : response.verifications()) {
    table.AddRow({output::ShortName(one.job()), ResultCell(context, one.result()), one.devices(),
                  one.worker_version(), one.user(), output::TimeText(one.time()),
                  one.reasons().empty() ? "" : one.reasons(0)});
  }
  context.out << table.Render() << std::flush;
  return link::kOk;
}

absl::StatusOr<v1::CloneJobRequest> VerifyRequestOf(const Context& context, const std::string& job,
                                                    const VerifyOptions& options) {
  v1::CloneJobRequest request;
  request.set_name(job);
  request.set_request_id(MakeUuid(context.rng));
  request.set_verifies(true);
  double tolerance = 0;
  if (!options.tolerance.empty() && (!absl::SimpleAtod(options.tolerance, &tolerance) ||
                                     !std::isfinite(tolerance) || tolerance <= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("--tolerance: '", options.tolerance,
                                                   "' is no number above 0, such as 0.01 for 1%"));
  }
  request.set_tolerance(tolerance);
  if (options.devices.has_value()) {
    v1::SpecChange* change = request.add_changes();
    change->set_path("devices.count");
    change->set_value_json(absl::StrCat(*options.devices));
  }
  return request;
}

Result Verify(const Context& context, const VerifyOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::string first, ResolveOne(*link, options.job));
  if (options.list) return ListVerified(context, *link, first);
  TY_ASSIGN_OR_RETURN(const v1::CloneJobRequest request, VerifyRequestOf(context, first, options));
  TY_ASSIGN_OR_RETURN(const v1::CloneJobResponse clone,
                      link->Call(&v1::JobService::Stub::CloneJob, request));
  const std::string& second = clone.job().name();
  const std::string id = output::ShortName(first);
  if (options.detach) {
    if (!PrintOne(context, clone.job(), second)) context.out << second << "\n" << std::flush;
    context.Say(absl::StrCat(second, " runs ", first, " again; `trainyard verify ", id,
                             " --list` says what came out"));
    return link::kOk;
  }
  context.Say(absl::StrCat(second, " runs ", first, " again"));
  const auto end = FollowJob(context, *link, second);
  TY_RETURN_IF_ERROR(end.status());
  if (*end == link::kInterrupted) return *end;
  TY_ASSIGN_OR_RETURN(const v1::ListVerificationsResponse response,
                      FetchVerifications(*link, first));
  for (const v1::Verification& one : response.verifications()) {
    if (one.job() != second) continue;
    if (!PrintOne(context, one, second)) PrintVerification(context, one, first);
    return IsReproduced(one.result()) ? link::kOk : link::kFailed;
  }
  return absl::NotFoundError(
      absl::StrCat(second, " was deleted before it could be compared with ", first));
}

}  // namespace

void AddVerify(VerbTable& verbs) {
  verbs.Add<VerifyOptions>(
      "verify", "Run a job again, and compare what comes out",
      "12\n"
      "  trainyard verify 12 --devices 4 --tolerance 0.02\n"
      "  trainyard verify 12 --list          what came out so far",
      [](client::Flags& flags, VerifyOptions& options) {
        flags.Word("JOB", options.job, kSelectorHelp).Required();
        flags
            .Value("--tolerance", options.tolerance,
                   "Metrics whose relative difference is at most this count as equal (0.01)")
            .ShownAs("NUMBER");
        flags.Value("--devices", options.devices, "Another number of devices").Range(0, 100'000);
        flags.Switch("--detach", options.detach, "Do not wait for its end");
        flags.Switch("--list", options.list, "List what came out of earlier runs; run nothing");
      },
      Verify);
}

}  // namespace trainyard::commands
