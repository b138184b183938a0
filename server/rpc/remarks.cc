// Shows remarks with their jobs.
#include "server/rpc/remarks.h"

#include "server/rpc/convert.h"

namespace trainyard::rpc {
namespace {

bool IsReproduced(v1::VerificationResult result) {
  return result == v1::VERIFICATION_RESULT_IDENTICAL ||
         result == v1::VERIFICATION_RESULT_EQUIVALENT;
}

}  // namespace

store::RemarkedJob RemarkedJobOf(const core::JobRecord& job) {
  return {job.id, job.submission->uid};
}

std::shared_ptr<const store::Remarks> RemarksOn(const store::RemarkStore* store,
                                                const core::JobRecord& job) {
  return store == nullptr ? nullptr : store->Find(RemarkedJobOf(job));
}

v1::VerificationSummary SummaryOf(const store::Remarks& remarks) {
  v1::VerificationSummary summary;
  for (const auto& [job, verification] : remarks.verifications) {
    summary.set_runs(summary.runs() + 1);
    if (IsReproduced(verification.result())) summary.set_reproduced(summary.reproduced() + 1);
    if (summary.has_last_time() &&
        FromTimestamp(verification.time()) < FromTimestamp(summary.last_time())) {
      continue;
    }
    *summary.mutable_last_time() = verification.time();
    summary.set_last_result(verification.result());
    summary.set_last_devices(verification.devices());
  }
  return summary;
}

v1::Job ShownJob(const runtime::JobView& view, const store::Remarks* remarks) {
  v1::Job job = ToProto(view);
  if (remarks == nullptr) return job;
  job.set_note(remarks->note);
  for (const std::string& tag : remarks->tags) job.add_added_tags(tag);
  if (!remarks->verifications.empty()) *job.mutable_verified() = SummaryOf(*remarks);
  return job;
}

v1::Job ShownJob(const Services& services, const runtime::JobView& view) {
  return ShownJob(view, RemarksOn(services.remarks, view.record).get());
}

}  // namespace trainyard::rpc
