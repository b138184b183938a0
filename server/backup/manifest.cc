// Writes and reads manifests, and copies the files that they name.
#include "server/backup/manifest.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/tls/digest.h"
#include "common/tls/file_digest.h"
#include "nlohmann/json.hpp"

namespace trainyard::backup {
namespace {

// Format 2 has files in pieces. A manifest without any is written in format 1, which older servers
// read.
constexpr int kFormat = 2;
constexpr int kFormatWithoutPieces = 1;
constexpr size_t kBlockBytes = size_t{1} << 20;

FileEntry EntryOf(const struct stat& info) {
  FileEntry entry;
  entry.size = info.st_size;
  entry.mode = static_cast<int>(info.st_mode & 0777);
  entry.mtime_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  return entry;
}

// A manifest that somebody has changed must not lead out of its folder.
bool IsSafe(const std::string& name) {
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return true;
}

// Reads the pieces of a file. Returns false if they cannot be all of it.
bool ReadPieces(const nlohmann::json& list, FileEntry& entry) {
  if (!list.is_array()) return false;
  for (const nlohmann::json& piece : list) {
    if (!piece.is_string()) return false;
    entry.pieces.push_back(piece.get<std::string>());
    if (!tls::Sha256Digits(absl::StrCat("sha256:", entry.pieces.back())).ok()) return false;
  }
  const int64_t count = entry.size / kPieceBytes + (entry.size % kPieceBytes == 0 ? 0 : 1);
  return static_cast<int64_t>(entry.pieces.size()) == count;
}

// Reads to the end, and hashes and writes what comes. Returns the bytes.
absl::StatusOr<int64_t> Pump(int from, const std::string& from_path, int to,
                             const std::string& to_path, tls::Sha256Hasher& hasher) {
  const auto block = std::make_unique_for_overwrite<char[]>(kBlockBytes);
  int64_t total = 0;
  while (true) {
    const ssize_t got = read(from, block.get(), kBlockBytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot read", from_path);
    if (got == 0) return total;
    const absl::string_view bytes(block.get(), static_cast<size_t>(got));
    hasher.Update(bytes);
    TY_RETURN_IF_ERROR(WriteFully(to, bytes, to_path));
    total += got;
  }
}

}  // namespace

absl::StatusOr<Manifest> ReadManifest(const std::string& snapshot) {
  const std::string path = JoinPath(snapshot, kManifestName);
  TY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kManifestBytesMax));
  return ParseManifest(text, path);
}

absl::StatusOr<Manifest> ParseManifest(const std::string& text, const std::string& path) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("format") || !json["format"].is_number_integer() ||
      !json.contains("files") || !json["files"].is_object()) {
    return error::CorruptFile(path, "it is no manifest of a snapshot");
  }
  if (json["format"].get<int>() > kFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        "'", path, "' has format ", json["format"].get<int>(), ", and this server knows ", kFormat,
        "; use the server that wrote it, or a newer one"));
  }
  Manifest manifest;
  const auto text_of = [](const nlohmann::json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
  };
  const auto number_of = [](const nlohmann::json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
  };
  manifest.server_version = text_of(json, "server_version");
  manifest.time = text_of(json, "time");
  manifest.revision = number_of(json, "revision");
  manifest.is_continuous = json.contains("continuous");
  for (const auto& [name, file] : json["files"].items()) {
    bool is_whole = file.is_object() && number_of(file, "size") >= 0 &&
                    number_of(file, "mode") >= 0 && !text_of(file, "sha256").empty();
    FileEntry entry;
    if (is_whole) {
      entry = {number_of(file, "size"), static_cast<int>(number_of(file, "mode") & 0777),
               number_of(file, "mtime_ns"), text_of(file, "sha256")};
      is_whole = !file.contains("pieces") || ReadPieces(file["pieces"], entry);
    }
    if (!is_whole || !IsSafe(name)) {
      return error::CorruptFile(path, absl::StrCat("the entry of '", name, "' is damaged"));
    }
    manifest.files[name] = std::move(entry);
  }
  return manifest;
}

std::string TextOf(const Manifest& manifest) {
  nlohmann::json files = nlohmann::json::object();
  int format = kFormatWithoutPieces;
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"size", file.size},
                   {"mode", file.mode},
                   {"mtime_ns", file.mtime_ns},
                   {"sha256", file.sha256}};
    if (file.pieces.empty()) continue;
    files[name]["pieces"] = file.pieces;
    format = kFormat;
  }
  nlohmann::json json = {{"format", format},
                         {"server_version", manifest.server_version},
                         {"time", manifest.time},
                         {"revision", manifest.revision},
                         {"files", files}};
  if (manifest.is_continuous) json["continuous"] = true;
  return absl::StrCat(json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace), "\n");
}

absl::Status WriteManifest(const std::string& snapshot, const Manifest& manifest,
                           int64_t bytes_max) {
  const std::string path = JoinPath(snapshot, kManifestName);
  const std::string text = TextOf(manifest);
  if (static_cast<int64_t>(text.size()) > bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "'", path, "' would have ", text.size(), " bytes for ", manifest.files.size(),
        " files; at most ", bytes_max,
        " can be read again. Let the server delete old logs (--keep_logs), or delete old jobs"));
  }
  return WriteFileAtomically(path, text, 0600);
}

std::optional<absl::Time> TimeOf(const Manifest& manifest) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_sec, manifest.time, &time, &error)) return std::nullopt;
  return time;
}

absl::StatusOr<std::string> BlobName(const std::string& hash) {
  TY_ASSIGN_OR_RETURN(const std::string digits, HashDigits(hash));
  return absl::StrCat("blobs/", digits.substr(0, 2), "/", digits);
}

absl::StatusOr<FileEntry> CopyFile(const std::string& from, const std::string& to) {
  TY_ASSIGN_OR_RETURN(const UniqueFd source, OpenRegularFile(from, O_RDONLY));
  struct stat info {};
  if (fstat(source.get(), &info) != 0) return ErrnoStatus(errno, "cannot look at", from);
  FileEntry entry = EntryOf(info);
  TY_RETURN_IF_ERROR(MakeDirectories(std::filesystem::path(to).parent_path().string(), 0700));
  // It is no truncation: the name may be a link to the file of an older snapshot.
  if (unlink(to.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "cannot replace", to);
  TY_ASSIGN_OR_RETURN(const UniqueFd target, OpenFile(to, O_WRONLY | O_CREAT | O_EXCL, 0600));
  tls::Sha256Hasher hasher;
  // A log may grow while it is copied. The entry then says what the copy has.
  TY_ASSIGN_OR_RETURN(entry.size, Pump(source.get(), from, target.get(), to, hasher));
  entry.sha256 = hasher.Text();
  if (fchmod(target.get(), static_cast<mode_t>(entry.mode)) != 0) {
    return ErrnoStatus(errno, "cannot set the mode of", to);
  }
  return entry;
}

absl::StatusOr<FileEntry> Look(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "cannot look at", path);
  return EntryOf(info);
}

std::string DamageOf(const std::string& snapshot, const std::string& name, const FileEntry& entry) {
  const auto hash = tls::Sha256OfFile(JoinPath(snapshot, name));
  if (!hash.ok()) return std::string(hash.status().message());
  if (*hash == entry.sha256) return "";
  return absl::StrCat("'", JoinPath(snapshot, name), "' has the hash ", *hash, "; expected ",
                      entry.sha256);
}

absl::Status CheckSize(const std::string& snapshot, const std::string& name,
                       const FileEntry& entry) {
  const std::string path = JoinPath(snapshot, name);
  const auto found = Look(path);
  if (found.ok() && found->size == entry.size) return absl::OkStatus();
  return error::CorruptFile(
      path, found.ok() ? absl::StrCat("it has ", found->size, " bytes; expected ", entry.size)
                       : std::string(found.status().message()));
}

absl::Status SyncFileSystem(const std::string& folder) {
  TY_ASSIGN_OR_RETURN(const UniqueFd opened, OpenFile(folder, O_RDONLY | O_DIRECTORY));
  return syncfs(opened.get()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "cannot sync", folder);
}

}  // namespace trainyard::backup
