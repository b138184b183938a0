// Checks what users save, and answers from the catalogue.
#include "server/rpc/spec_service.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/labels.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "server/rpc/answers.h"
#include "server/rpc/code_use.h"
#include "server/rpc/convert.h"
#include "server/rpc/limits.h"
#include "server/rpc/saved_specs.h"

namespace trainyard::rpc {
namespace {

using Summary = store::SpecStore::Summary;

absl::Status NoCatalogue() {
  return absl::UnavailableError("this server has no catalogue");
}

void CheckWords(const v1::SaveSpecRequest& request, RequestCheck& check) {
  if (!IsSpecName(request.name())) {
    check.Add("name", absl::StrCat("'", request.name().substr(0, 64),
                                   "' is no name for a saved spec; expected a letter, then "
                                   "letters, digits, '_', '.' and '-', at most 63, and none of "
                                   "last, best, latest"));
  }
  check.MaxBytes("note", request.note(), kNoteBytesMax);
  check.MaxCount("tags", request.tags_size(), static_cast<int>(kLabelsMax));
  for (int i = 0; i < request.tags_size(); ++i) {
    check.Name(absl::StrCat("tags[", i, "]"), request.tags(i));
  }
  if (request.source_case() == v1::SaveSpecRequest::SOURCE_NOT_SET) {
    check.Add("source", "must be given: a job or a spec");
  }
}

// Decides which saved specs a request lets through.
class SavedFilter {
 public:
  SavedFilter(const v1::ListSavedSpecsRequest& request, const access::Caller& caller,
              const Services& services)
      : tags_(request.tags().begin(), request.tags().end()),
        text_(absl::AsciiStrToLower(request.text())),
        caller_(caller),
        services_(services) {}

  bool Accepts(const v1::SavedSpec& saved) const {
    const bool has_tags = std::all_of(tags_.begin(), tags_.end(), [&](const std::string& tag) {
      return std::find(saved.tags().begin(), saved.tags().end(), tag) != saved.tags().end();
    });
    return has_tags && HasText(saved) && MaySee(caller_, services_, saved);
  }

 private:
  bool HasText(const v1::SavedSpec& saved) const {
    if (text_.empty()) return true;
    const std::string all =
        absl::StrCat(saved.name(), "\n", saved.note(), "\n", saved.model(), "\n", saved.dataset(),
                     "\n", saved.title(), "\n", absl::StrJoin(saved.tags(), "\n"));
    return absl::StrContains(absl::AsciiStrToLower(all), text_);
  }

  const std::vector<std::string> tags_;
  const std::string text_;
  const access::Caller& caller_;
  const Services& services_;
};

// A page of saved specs under way.
class Page {
 public:
  Page(int size, v1::ListSavedSpecsResponse& response) : size_(size), response_(response) {}

  // Returns false if the page is full, and `saved` begins the next one.
  bool Add(const v1::SavedSpec& saved, int32_t versions, absl::string_view token_of_last) {
    bytes_ += saved.ByteSizeLong();
    if (response_.specs_size() == size_ || (bytes_ > kPageBytesMax && response_.specs_size() > 0)) {
      response_.set_next_page_token(std::string(token_of_last));
      return false;
    }
    v1::SavedSpec& added = *response_.add_specs();
    added = saved;
    added.set_versions(versions);
    return true;
  }

 private:
  const int size_;
  v1::ListSavedSpecsResponse& response_;
  size_t bytes_ = 0;
};

}  // namespace

SpecServiceImpl::SpecServiceImpl(Services& services) : services_(services) {}

absl::Status SpecServiceImpl::CheckOwner(const access::Caller& caller,
                                         const std::string& name) const {
  const Summary newest = services_.specs->Find({name, 0});
  if (newest == nullptr || access::MayChange(caller, newest->user())) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kPermissionDenied, "NOT_OWNER",
      absl::StrCat("'", name, "' belongs to '", newest->user(), "', and you are '", caller.user,
                   "'; save it under another name, or ask the owner or an operator"));
}

absl::StatusOr<v1::SavedSpec> SpecServiceImpl::SourceOf(const access::Caller& caller,
                                                        const v1::SaveSpecRequest& request) {
  RequestCheck check;
  CheckWords(request, check);
  JobId job;
  if (request.has_job()) job = check.Job("job", request.job());
  v1::SavedSpec saved;
  if (request.has_spec()) {
    std::vector<FieldViolation> violations;
    const auto resolved = services_.resolve_cache->Resolve(request.spec(), violations);
    check.Add(std::move(violations));
    if (resolved != nullptr) {
      saved = SavedSpecOf(request.spec(), resolved->spec);
      core::Submission unused;
      TY_RETURN_IF_ERROR(TakeCode(resolved->spec, request.code_origin(), request.validate_only(),
                                  caller, services_, check, unused));
      if (request.code_origin().ByteSizeLong() > 0) {
        *saved.mutable_code_origin() = request.code_origin();
      }
    }
  }
  TY_RETURN_IF_ERROR(check.Take());
  if (request.has_job()) {
    TY_ASSIGN_OR_RETURN(const auto view, FindJob(services_.board, job));
    if (!MaySee(caller, services_, view->record)) return error::JobNotFound(request.job());
    saved = SavedSpecOf(*view);
    // The archive stays until the catalogue has it, even if the job is deleted in between.
    for (const std::string& digest : {saved.code(), saved.code_origin().diff_digest()}) {
      if (!digest.empty()) (void)MayUseCode(caller, services_, digest);
    }
  }
  if (!services_.directory.MaySubmitTo(caller, saved.project())) {
    return MakeError(absl::StatusCode::kPermissionDenied, "NOT_A_MEMBER",
                     absl::StrCat("project '", saved.project(), "' is private, and '", caller.user,
                                  "' is no member"));
  }
  TY_RETURN_IF_ERROR(CheckOwner(caller, request.name()));
  saved.set_user(caller.user);
  saved.set_note(request.note());
  *saved.mutable_tags() = request.tags();
  saved.set_server_version(services_.version);
  *saved.mutable_create_time() = ToTimestamp(absl::ToUnixMicros(services_.sign_in->clock->Now()));
  return saved;
}

grpc::ServerUnaryReactor* SpecServiceImpl::SaveSpec(const access::Caller& caller,
                                                    grpc::CallbackServerContext* context,
                                                    const v1::SaveSpecRequest* request,
                                                    v1::SavedSpec* response) {
  if (services_.specs == nullptr) return Finished(context, NoCatalogue());
  auto source = SourceOf(caller, *request);
  if (!source.ok()) return Finished(context, source.status());
  auto saved = std::make_shared<v1::SavedSpec>(*std::move(source));
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto put = [this, saved, caller, request, response, reactor] {
    // Somebody else may have taken the name since it was looked at.
    absl::Status status = CheckOwner(caller, request->name());
    if (status.ok() && request->validate_only()) {
      *response = *saved;
      response->set_name(SpecName({request->name(), 0}));
    } else if (status.ok()) {
      auto kept = services_.specs->Put(request->name(), *saved);
      status = kept.status();
      if (kept.ok()) *response = *std::move(kept);
    }
    reactor->Finish(ToGrpcStatus(status));
  };
  services_.runtime.Read([this, saved, put, reactor](absl::StatusOr<const core::Yard*> yard) {
    absl::Status status = yard.status();
    if (status.ok() && saved->has_result()) {
      const auto job = ParseJobName(saved->result().job());
      const auto view = job.ok() ? services_.board.FindJob(*job) : nullptr;
      if (view != nullptr && view->attempt != nullptr) {
        saved->mutable_result()->set_devices(DevicesText(*view->attempt, **yard));
      }
    }
    if (status.ok()) status = changes_.TryPost(put);
    if (!status.ok()) reactor->Finish(ToGrpcStatus(status));
  });
  return reactor;
}

grpc::ServerUnaryReactor* SpecServiceImpl::GetSavedSpec(const access::Caller& caller,
                                                        grpc::CallbackServerContext* context,
                                                        const v1::GetSavedSpecRequest* request,
                                                        v1::SavedSpec* response) {
  const auto found = FindSavedSpec(request->name(), caller, services_);
  if (!found.ok()) return Finished(context, found.status());
  return FinishAfter(context, services_.executor, [this, name = (*found)->name(), response] {
    TY_ASSIGN_OR_RETURN(const SpecId id, ParseSpecName(name));
    TY_ASSIGN_OR_RETURN(*response, services_.specs->Read(id));
    response->set_versions(static_cast<int32_t>(services_.specs->VersionsOf(id.name).size()));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* SpecServiceImpl::ListSavedSpecs(const access::Caller& caller,
                                                          grpc::CallbackServerContext* context,
                                                          const v1::ListSavedSpecsRequest* request,
                                                          v1::ListSavedSpecsResponse* response) {
  if (services_.specs == nullptr) return Finished(context, NoCatalogue());
  RequestCheck check;
  const int page_size =
      check.PageSize("page_size", request->page_size(), kSpecsPageDefault, kSpecsPageMax);
  check.MaxBytes("text", request->text(), kNameBytesMax);
  check.MaxBytes("page_token", request->page_token(), kNameBytesMax);
  check.MaxCount("tags", request->tags_size(), static_cast<int>(kLabelsMax));
  if (!check.ok()) return Refused(context, check);
  const SavedFilter filter(*request, caller, services_);
  Page page(page_size, *response);
  std::string last;
  if (!request->parent().empty()) {
    const auto newest = FindSavedSpec(request->parent(), caller, services_);
    if (!newest.ok()) return Finished(context, newest.status());
    const auto versions = services_.specs->VersionsOf(ParseSpecName((*newest)->name())->name);
    const auto count = static_cast<int32_t>(versions.size());
    bool has_begun = request->page_token().empty();
    for (const Summary& version : versions) {
      if (has_begun && filter.Accepts(*version) && !page.Add(*version, count, last)) break;
      if (version->name() == request->page_token()) has_begun = true;
      last = version->name();
    }
    return Finished(context, absl::OkStatus());
  }
  // The versions are counted after the walk, which holds the lock of the catalogue.
  services_.specs->ForEachNewest(request->page_token(), [&](const Summary& newest) {
    const std::string name = ParseSpecName(newest->name())->name;
    if (filter.Accepts(*newest) && !page.Add(*newest, 0, last)) return false;
    last = name;
    return true;
  });
  for (v1::SavedSpec& listed : *response->mutable_specs()) {
    const std::string name = ParseSpecName(listed.name())->name;
    listed.set_versions(static_cast<int32_t>(services_.specs->VersionsOf(name).size()));
  }
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* SpecServiceImpl::DeleteSavedSpec(
    const access::Caller& caller, grpc::CallbackServerContext* context,
    const v1::DeleteSavedSpecRequest* request, v1::DeleteSavedSpecResponse* response) {
  const auto found = FindSavedSpec(request->name(), caller, services_);
  if (!found.ok()) return Finished(context, found.status());
  const SpecId id = *ParseSpecName(request->name());
  if (const absl::Status owner = CheckOwner(caller, id.name); !owner.ok()) {
    return Finished(context, owner);
  }
  return FinishAfter(context, changes_, [this, id, response]() -> absl::Status {
    TY_ASSIGN_OR_RETURN(const int32_t versions, services_.specs->Delete(id));
    response->set_versions(versions);
    return absl::OkStatus();
  });
}

}  // namespace trainyard::rpc
