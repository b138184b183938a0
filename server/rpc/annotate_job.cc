// Takes remarks on jobs from people.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/spec/rules.h"
#include "server/rpc/answers.h"
#include "server/rpc/job_service.h"
#include "server/rpc/limits.h"
#include "server/rpc/remarks.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

// Checks tags by the rules of those of a spec.
void CheckTags(absl::string_view field, const google::protobuf::RepeatedPtrField<std::string>& tags,
               RequestCheck& check) {
  check.MaxCount(field, tags.size(), kTagsAddedMax);
  v1::JobSpec spec;
  *spec.mutable_tags() = tags;
  for (const FieldViolation& violation : spec::ValidateRules(spec, "")) {
    absl::string_view path = violation.field;
    // The rest of the spec is empty, and of no interest.
    if (absl::ConsumePrefix(&path, "tags")) {
      check.Add(absl::StrCat(field, path), violation.description);
    }
  }
}

}  // namespace

grpc::ServerUnaryReactor* JobServiceImpl::AnnotateJob(const access::Caller&,
                                                      grpc::CallbackServerContext* context,
                                                      const v1::AnnotateJobRequest* request,
                                                      v1::Job* response) {
  RequestCheck check;
  const JobId id = check.Job("name", request->name());
  check.MaxBytes("note", request->note(), store::kJobNoteBytesMax);
  if (!IsUtf8(request->note())) check.Add("note", "is no UTF-8");
  CheckTags("add_tags", request->add_tags(), check);
  CheckTags("remove_tags", request->remove_tags(), check);
  if (!check.ok()) return Refused(context, check);
  if (services_.remarks == nullptr) {
    return Finished(context, absl::UnimplementedError("this server keeps no remarks"));
  }
  const auto view = FindJob(services_.board, id);
  if (!view.ok()) return Finished(context, view.status());
  return FinishAfter(
      context, services_.executor, [this, view = *view, request, response]() -> absl::Status {
        const core::JobRecord& job = view->record;
        const std::vector<std::string> removed(request->remove_tags().begin(),
                                               request->remove_tags().end());
        const auto& written = job.submission->tags;
        std::vector<std::string> added;
        for (const std::string& tag : request->add_tags()) {
          // A tag of the spec is there already.
          if (std::find(written.begin(), written.end(), tag) == written.end()) added.push_back(tag);
        }
        std::set<std::string> all;
        if (const auto remarks = RemarksOn(services_.remarks, job); remarks != nullptr)
          all = remarks->tags;
        for (const std::string& tag : removed) all.erase(tag);
        all.insert(added.begin(), added.end());
        if (all.size() > size_t{kTagsAddedMax}) {
          return InvalidFields(
              {{"add_tags", absl::StrCat("would make ", all.size(),
                                         " added tags; expected at most ", kTagsAddedMax)}});
        }
        std::optional<std::string> note;
        if (request->has_note()) note = request->note();
        TY_RETURN_IF_ERROR(services_.remarks->Annotate(RemarkedJobOf(job), note, added, removed));
        *response = ShownJob(services_, *view);
        return absl::OkStatus();
      });
}

}  // namespace trainyard::rpc
