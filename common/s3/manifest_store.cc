// Orders the writes so that each moment shows a whole version.
#include "common/s3/manifest_store.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/s3/file_transfer.h"
#include "common/s3/sign.h"
#include "common/tls/digest.h"
#include "common/tls/file_digest.h"

namespace trainyard::s3 {
namespace {

constexpr size_t kNumberDigits = 20;
constexpr size_t kHashDigits = 64;
constexpr size_t kNameBytes = kNumberDigits + 1 + kHashDigits;
constexpr int64_t kLatestBytesMax = int64_t{1} << 20;
constexpr int64_t kPageObjectsMin = 100;

// Returns the number in the name of a manifest, or 0 if it is none.
int64_t NumberOf(absl::string_view name) {
  int64_t number = 0;
  const bool is_name =
      name.size() == kNameBytes && name[kNumberDigits] == '-' &&
      absl::SimpleAtoi(name.substr(0, kNumberDigits), &number) && number > 0 &&
      tls::Sha256Digits(absl::StrCat("sha256:", name.substr(kNumberDigits + 1))).ok();
  return is_name ? number : 0;
}

}  // namespace

int64_t CountOf(const ListPage& page) {
  const auto count = static_cast<int64_t>(page.objects.size());
  return page.next.empty() ? count : std::max(count, kPageObjectsMin);
}

std::string ManifestStore::KeyOf(const Blob& blob) const {
  return absl::StrCat(prefix_, "blobs/sha256/", blob.sha256);
}

absl::StatusOr<bool> ManifestStore::PutBlob(const std::string& path, const Blob& blob) {
  return SendUnlessThere(
      blob, [&](const PutCondition& condition) { return Send(path, blob, condition); });
}

absl::StatusOr<bool> ManifestStore::PutHashedBlob(const std::string& path, const Blob& blob) {
  return SendUnlessThere(blob, [&](const PutCondition& condition) {
    return UploadFile(client_, KeyOf(blob), path, blob.size, condition);
  });
}

absl::StatusOr<bool> ManifestStore::SendUnlessThere(const Blob& blob, const Sender& send) {
  const auto info = client_.Head(KeyOf(blob));
  if (info.ok() && info->size == blob.size) return false;
  if (!info.ok() && !absl::IsNotFound(info.status())) return info.status();
  // A blob of another size is damaged, and is replaced.
  const bool is_new = !info.ok() && AreHonoured(conditions_);
  const absl::Status status = send({.is_new = is_new});
  // Somebody else has written it meanwhile, or we have and the answer was lost.
  if (is_new && absl::IsAborted(status)) return false;
  TY_RETURN_IF_ERROR(status);
  return true;
}

absl::Status ManifestStore::ReplaceBlob(const std::string& path, const Blob& blob) {
  return Send(path, blob, {});
}

absl::Status ManifestStore::PutContent(absl::string_view content, const Blob& blob) {
  return client_.Put(KeyOf(blob), content).status();
}

absl::StatusOr<std::string> ManifestStore::GetContent(const Blob& blob) {
  const std::string key = KeyOf(blob);
  TY_ASSIGN_OR_RETURN(Object object, client_.Get(key, blob.size));
  if (HexSha256(object.content) == blob.sha256) return std::move(object.content);
  return error::CorruptFile(key, "its hash is not that of its name");
}

absl::Status ManifestStore::Send(const std::string& path, const Blob& blob,
                                 const PutCondition& condition) {
  TY_ASSIGN_OR_RETURN(const std::string hash, tls::Sha256OfFile(path));
  if (hash != absl::StrCat("sha256:", blob.sha256)) {
    return error::CorruptFile(
        path, absl::StrCat("its hash is ", hash, "; expected sha256:", blob.sha256));
  }
  return UploadFile(client_, KeyOf(blob), path, blob.size, condition);
}

absl::Status ManifestStore::ForEachBlob(const BlobVisitor& function) {
  const std::string folder = KeyOf({});
  return ForEach("blobs/sha256/", [&](const ListedObject& object) -> absl::Status {
    absl::string_view digits = object.key;
    // Stores do not always list what was asked for, and other programs may write there.
    if (!absl::ConsumePrefix(&digits, folder) ||
        !tls::Sha256Digits(absl::StrCat("sha256:", digits)).ok()) {
      return absl::OkStatus();
    }
    return function(std::string(digits), object);
  });
}

absl::Status ManifestStore::GetBlob(const Blob& blob, const std::string& path, int mode) {
  return DownloadFile(client_, KeyOf(blob), path, blob.size, blob.sha256, mode);
}

absl::StatusOr<Version> ManifestStore::ReadVersion(const std::string& name) {
  const std::string key = absl::StrCat(prefix_, "manifests/", name);
  TY_ASSIGN_OR_RETURN(Object object, client_.Get(key, limits_.manifest_bytes));
  if (HexSha256(object.content) != name.substr(kNumberDigits + 1)) {
    return error::CorruptFile(absl::StrCat("manifests/", name), "its hash is not that of its name");
  }
  return Version{NumberOf(name), std::move(object.content), ""};
}

absl::Status ManifestStore::ForEach(
    const std::string& folder, const std::function<absl::Status(const ListedObject&)>& function) {
  ListRequest request{.prefix = absl::StrCat(prefix_, folder)};
  for (int64_t listed = 0;;) {
    TY_ASSIGN_OR_RETURN(const ListPage page, client_.List(request));
    for (const ListedObject& object : page.objects) TY_RETURN_IF_ERROR(function(object));
    listed += CountOf(page);
    if (listed > limits_.objects) {
      return absl::ResourceExhaustedError(
          absl::StrCat("'", request.prefix, "' has over ", limits_.objects, " objects"));
    }
    if (page.next.empty()) return absl::OkStatus();
    if (page.next == request.token) {
      return absl::DataLossError(absl::StrCat("the list of '", request.prefix, "' does not end"));
    }
    request.token = page.next;
  }
}

absl::StatusOr<std::vector<std::string>> ManifestStore::Names() {
  std::vector<std::string> names;
  const std::string folder = absl::StrCat(prefix_, "manifests/");
  TY_RETURN_IF_ERROR(ForEach("manifests/", [&](const ListedObject& object) -> absl::Status {
    const absl::string_view name = absl::StripPrefix(object.key, folder);
    if (NumberOf(name) > 0) names.emplace_back(name);
    if (names.size() <= limits_.manifests) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("'", folder, "' has over ", limits_.manifests, " manifests"));
  }));
  std::sort(names.rbegin(), names.rend());  // stores other than AWS need not sort
  return names;
}

absl::StatusOr<Version> ManifestStore::Latest() {
  const auto latest = client_.Get(absl::StrCat(prefix_, "latest"), kLatestBytesMax);
  if (!latest.ok() && !absl::IsNotFound(latest.status())) return latest.status();
  const std::string etag = latest.ok() ? latest->info.etag : "";
  const auto is_bad = [](const absl::Status& status) {
    return absl::IsNotFound(status) || absl::IsDataLoss(status);
  };
  if (latest.ok() && NumberOf(latest->content) > 0) {
    auto version = ReadVersion(latest->content);
    if (version.ok()) version->latest_etag = etag;
    if (version.ok() || !is_bad(version.status())) return version;
  }
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, Names());
  for (const std::string& name : names) {
    auto version = ReadVersion(name);
    if (version.ok()) version->latest_etag = etag;
    if (version.ok() || !is_bad(version.status())) return version;
  }
  return Version{.latest_etag = etag};
}

absl::StatusOr<int64_t> ManifestStore::Commit(absl::string_view content, const Version& before) {
  // `latest` must never name what Latest refuses to read.
  if (static_cast<int64_t>(content.size()) > kManifestBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a manifest has ", content.size(), " bytes; expected at most ", kManifestBytesMax));
  }
  const int64_t number = before.number + 1;
  const std::string name = absl::StrCat(
      absl::StrFormat("%0*d", static_cast<int>(kNumberDigits), number), "-", HexSha256(content));
  const std::string latest = absl::StrCat(prefix_, "latest");
  TY_RETURN_IF_ERROR(client_.Put(absl::StrCat(prefix_, "manifests/", name), content).status());
  if (!AreHonoured(conditions_)) {
    // A `latest` that was left by another store would hide this version.
    if (!before.latest_etag.empty()) TY_RETURN_IF_ERROR(client_.Delete(latest));
    return number;
  }
  const PutCondition condition = before.latest_etag.empty()
                                     ? PutCondition{.is_new = true}
                                     : Replaces(before.latest_etag, conditions_);
  const absl::Status status = client_.Put(latest, name, condition).status();
  if (status.ok()) return number;
  if (absl::IsAborted(status)) {
    // An earlier try may have written it, and its answer was lost.
    const auto there = client_.Get(latest, kLatestBytesMax);
    if (there.ok() && there->content == name) return number;
  }
  return status;
}

absl::StatusOr<int64_t> ManifestStore::Prune(int keep, const BlobsOf& blobs_of, absl::Time now,
                                             absl::Duration spare) {
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, Names());
  const size_t kept = static_cast<size_t>(std::max(keep, 1));
  if (names.size() <= kept + kept / 4) return 0;
  TY_ASSIGN_OR_RETURN(const Version newest, Latest());
  std::set<std::string> named;
  // All that stay are read before anything goes. One that cannot be read says nothing of its blobs,
  // so none of them goes then.
  std::vector<std::string> old;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i >= kept && NumberOf(names[i]) < newest.number) {
      old.push_back(names[i]);
      continue;
    }
    TY_ASSIGN_OR_RETURN(const Version version, ReadVersion(names[i]));
    TY_ASSIGN_OR_RETURN(const std::set<std::string> blobs, blobs_of(version.content));
    named.insert(blobs.begin(), blobs.end());
  }
  for (const std::string& name : old) {
    TY_RETURN_IF_ERROR(client_.Delete(absl::StrCat(prefix_, "manifests/", name)));
  }
  std::vector<std::string> unnamed;
  TY_RETURN_IF_ERROR(ForEachBlob([&](const std::string& digits, const ListedObject& object) {
    if (!named.contains(digits) && object.modified < now - spare) unnamed.push_back(object.key);
    return absl::OkStatus();
  }));
  for (const std::string& key : unnamed) TY_RETURN_IF_ERROR(client_.Delete(key));
  return static_cast<int64_t>(unnamed.size());
}

}  // namespace trainyard::s3
