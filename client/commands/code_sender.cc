// Asks first, since the server has most code already: a thousand jobs of one folder send it once.
#include "client/commands/code_sender.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/tls/digest.h"

namespace trainyard::commands {
namespace {

constexpr int64_t kUploadChunk = int64_t{1} << 20;
// Whoever goes on where a broken upload stopped makes at least a chunk of progress in each round.
constexpr int kUploadTries = 5;
constexpr absl::Duration kUploadRetry = absl::Milliseconds(300);

// Returns the offset that the server expects, or -1 if the failure is another one.
int64_t OffsetToGoOn(const absl::Status& status) {
  int64_t offset = -1;
  const auto metadata = GetErrorMetadata(status);
  const auto found = metadata.find(error::kExpectedOffset);
  if (found == metadata.end() || !absl::SimpleAtoi(found->second, &offset)) return -1;
  return offset;
}

// Returns the folder without what changes nothing: "/x/p" for "/x/p/.".
std::string ShownFolder(const std::string& folder) {
  std::string shown = std::filesystem::path(folder).lexically_normal().string();
  if (shown.size() > 1 && shown.back() == '/') shown.pop_back();
  return shown;
}

}  // namespace

std::string CacheHome(const Context& context) {
  const std::string home = VariableOf(context.surroundings, "XDG_CACHE_HOME").value_or("");
  return JoinPath(home.empty() ? JoinPath(context.surroundings.home, ".cache") : home, "trainyard");
}

CodeSender::CodeSender(const Context& context, link::ServerLink* link)
    : context_(context), link_(link), cache_(JoinPath(CacheHome(context), "code"), context.clock) {}

absl::Status CodeSender::Send(const spec_loader::SpecFile& file, v1::JobSpec& spec,
                              v1::SubmitOptions& options) {
  const std::string& code = spec.program().code();
  if (code.empty()) return absl::OkStatus();
  if (tls::Sha256Digits(code).ok()) {
    if (file.code == nullptr || file.code->digest != code) return absl::OkStatus();
    *options.mutable_code_origin() = file.code->origin;
    return SendArchive(*file.code);
  }
  std::filesystem::path folder = code;
  if (code == "~" || absl::StartsWith(code, "~/")) {
    folder = absl::StrCat(context_.surroundings.home, code.substr(1));
  } else if (folder.is_relative() && FileExists(file.name)) {
    folder = std::filesystem::path(file.name).parent_path() / folder;
  }
  TY_ASSIGN_OR_RETURN(*spec.mutable_program()->mutable_code(),
                      SendFolder(folder.string(), *options.mutable_code_origin()));
  return absl::OkStatus();
}

absl::Status CodeSender::SendArchive(const spec_loader::SpecCode& code) {
  if (link_ == nullptr || sent_.contains(code.digest)) return absl::OkStatus();
  TY_RETURN_IF_ERROR(SendMissing(code.digest, code.archive, code.origin, code.diff).status());
  sent_[code.digest] = {code.digest, code.origin};
  return absl::OkStatus();
}

absl::StatusOr<std::string> CodeSender::SendFolder(const std::string& folder,
                                                   v1::CodeOrigin& origin) {
  auto sent = sent_.find(folder);
  if (sent == sent_.end()) {
    TY_ASSIGN_OR_RETURN(Sent made, Take(folder));
    sent = sent_.emplace(folder, std::move(made)).first;
  }
  origin = sent->second.origin;
  return sent->second.digest;
}

absl::StatusOr<CodeSender::Sent> CodeSender::Take(const std::string& folder) {
  TY_ASSIGN_OR_RETURN(const code::MadeArchive made, cache_.Make(folder));
  for (const std::string& sentence : made.left_out) {
    context_.Say(absl::StrCat("warning: ", sentence));
  }
  Sent sent{made.digest, made.origin};
  if (!made.diff.empty()) sent.origin.set_diff_digest(tls::Sha256Text(made.diff));
  if (link_ == nullptr) return sent;
  TY_ASSIGN_OR_RETURN(const bool was_missing,
                      SendMissing(sent.digest, made.path, sent.origin, made.diff));
  if (was_missing) {
    context_.Say(
        absl::StrCat("sent the code of '", ShownFolder(folder), "', ", FormatBytes(made.size)));
  }
  return sent;
}

absl::StatusOr<bool> CodeSender::SendMissing(const std::string& digest, const std::string& path,
                                             const v1::CodeOrigin& origin,
                                             const std::string& diff) {
  v1::FindCodeRequest request;
  request.add_digests(digest);
  if (!diff.empty()) request.add_digests(origin.diff_digest());
  const auto found = link_->Call(&v1::CodeService::Stub::FindCode, request);
  if (absl::IsUnimplemented(found.status())) {
    return absl::UnimplementedError(
        "the server is older than this client and takes no code; leave program.code out");
  }
  TY_RETURN_IF_ERROR(found.status());
  const std::set<std::string> there(found->digests().begin(), found->digests().end());
  const bool is_missing = !there.contains(digest);
  if (is_missing) {
    TY_ASSIGN_OR_RETURN(const int64_t size, FileSize(path));
    TY_RETURN_IF_ERROR(Upload(digest, size, path, ""));
  }
  if (!diff.empty() && !there.contains(origin.diff_digest())) {
    TY_RETURN_IF_ERROR(Upload(origin.diff_digest(), static_cast<int64_t>(diff.size()), "", diff));
  }
  return is_missing;
}

// Sends the file at `path`, or `text` if there is none.
absl::Status CodeSender::Upload(const std::string& digest, int64_t size, const std::string& path,
                                const std::string& text) {
  v1::UploadCodeRequest request;
  request.set_digest(digest);
  request.set_size(size);
  int tries = 0;
  for (int64_t offset = 0; offset < size;) {
    request.set_offset(offset);
    if (path.empty()) {
      request.set_data(text.substr(static_cast<size_t>(offset), kUploadChunk));
    } else {
      TY_ASSIGN_OR_RETURN(*request.mutable_data(), ReadFileRange(path, offset, kUploadChunk));
    }
    const auto response = link_->Call(&v1::CodeService::Stub::UploadCode, request);
    if (response.ok()) {
      offset = response->next_offset();
      continue;
    }
    if (++tries == kUploadTries) return response.status();
    if (const int64_t expected = OffsetToGoOn(response.status()); expected >= 0) {
      offset = std::min(expected, size);
    } else if (!absl::IsUnavailable(response.status())) {
      return response.status();
    } else if (context_.interrupt.WaitFor(kUploadRetry)) {
      return absl::CancelledError("interrupted");
    }
  }
  return absl::OkStatus();
}

}  // namespace trainyard::commands
