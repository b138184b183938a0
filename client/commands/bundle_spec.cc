// A bundle is read no further than its code, which stands at its beginning.
#include "client/commands/bundle_spec.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/code/archive_cache.h"
#include "client/commands/bundle_parts.h"
#include "client/commands/checkpoint_files.h"
#include "client/commands/code_sender.h"
#include "client/commands/export_job.h"
#include "client/commands/fetch_progress.h"
#include "client/commands/selector.h"
#include "client/config/config_file.h"
#include "client/daemons/child.h"
#include "client/fetch/download.h"
#include "client/output/proto_text.h"
#include "common/base/bundle_errors.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/program_paths.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

constexpr absl::Duration kUrlTimeout = absl::Hours(24);

bool IsUrl(absl::string_view source) {
  return absl::StartsWith(source, "https://") || absl::StartsWith(source, "http://");
}

// A job on the server of a context: lab:jobs/12.
struct RemoteJob {
  std::string context;
  std::string job;
};

// The context is empty if the text names no such job.
RemoteJob RemoteJobOf(const std::string& source) {
  const size_t colon = source.find(":jobs/");
  if (colon == std::string::npos || colon == 0) return {};
  const std::string context = source.substr(0, colon);
  if (context.find_first_of("/\\") != std::string::npos) return {};
  return {context, source.substr(colon + 1)};
}

bool IsLocalBundle(const std::string& path) {
  std::error_code failed;
  // Only a file can be looked at twice.
  if (!std::filesystem::is_regular_file(path, failed) || failed) return false;
  const auto begin = ReadFileRange(path, 0, static_cast<int64_t>(bundle::kMagic.size()));
  return begin.ok() && *begin == bundle::kMagic;
}

absl::Status Download(const Context& context, const std::string& url, const std::string& path) {
  TY_ASSIGN_OR_RETURN(const std::string fetcher,
                      FindProgram(context.surroundings.binary_dir, "trainyard-fetch"));
  FetchProgress progress(context, url.substr(url.rfind('/') + 1));
  // Other users of this host see the arguments of a program, and a URL may hold a secret.
  const auto result = daemons::RunChild(
      {fetcher, "--url", "-", "--to", path, "--secure", "--progress"}, url, kUrlTimeout,
      [&progress](absl::string_view text) { progress.OnOutput(text); });
  progress.Clear();
  TY_RETURN_IF_ERROR(result.status());
  if (result->exit_code == 0) return absl::OkStatus();
  const std::string error(absl::StripAsciiWhitespace(result->err));
  return result->exit_code == fetch::kExitUnavailable
             ? MakeError(absl::StatusCode::kUnavailable, "SOURCE_UNREACHABLE", error)
             : absl::NotFoundError(error);
}

absl::Status ExportElsewhere(const Context& context, const RemoteJob& remote,
                             const std::string& checkpoints, const std::string& path) {
  GlobalOptions options = context.options;
  options.server.clear();
  options.context = remote.context;
  options.act_as.clear();
  const Context there = {options,     context.surroundings, context.terminal,       context.out,
                         context.err, context.in,           context.in_is_terminal, context.clock,
                         context.rng, context.interrupt,    context.raw_out};
  TY_ASSIGN_OR_RETURN(const auto link, Connect(there));
  TY_ASSIGN_OR_RETURN(const std::string job, ResolveOne(*link, remote.job));
  ExportOptions what;
  what.checkpoints = checkpoints.empty() ? "none" : checkpoints;
  what.has_metrics = !checkpoints.empty();
  return ExportJob(there, *link, job, what, path).status();
}

}  // namespace

bool IsBundleSource(const std::string& source) {
  if (IsUrl(source) || IsLocalBundle(source)) return true;
  return !RemoteJobOf(source).context.empty() && !FileExists(source);
}

BundleFile::BundleFile(BundleFile&& other) noexcept
    : name_(std::move(other.name_)),
      folder_(std::exchange(other.folder_, "")),
      fd_(std::move(other.fd_)),
      reader_(std::move(other.reader_)) {}

BundleFile::~BundleFile() {
  if (!folder_.empty()) (void)RemoveTree(folder_);
}

absl::StatusOr<BundleFile> BundleFile::Open(const Context& context, const std::string& source,
                                            const std::string& checkpoints) {
  BundleFile file;
  file.name_ = source;
  std::string path = source;
  const RemoteJob remote = RemoteJobOf(source);
  const bool is_elsewhere = !remote.context.empty() && !FileExists(source);
  if (IsUrl(source) || is_elsewhere) {
    TY_ASSIGN_OR_RETURN(file.folder_, MakeTemporaryDirectory());
    path = JoinPath(file.folder_, "job.trainyard");
    TY_RETURN_IF_ERROR(is_elsewhere ? ExportElsewhere(context, remote, checkpoints, path)
                                    : Download(context, source, path));
  }
  if (path != "-") {
    if (!IsLocalBundle(path)) {
      TY_RETURN_IF_ERROR(OpenFile(path, O_RDONLY).status());
      return error::BundleRefused(source, "it is no bundle; `trainyard export JOB` writes one");
    }
    TY_ASSIGN_OR_RETURN(file.fd_, OpenFile(path, O_RDONLY));
  }
  const int fd = path == "-" ? STDIN_FILENO : file.fd_.get();
  TY_ASSIGN_OR_RETURN(file.reader_, bundle::BundleReader::Open(tar::SourceOf(fd, path), source));
  return file;
}

absl::StatusOr<std::string> KeepCode(const Context& context, const std::string& digest,
                                     bundle::BundleReader& reader) {
  const code::ArchiveCache cache(JoinPath(CacheHome(context), "code"), context.clock);
  TY_RETURN_IF_ERROR(cache.Prepare());
  std::string path = cache.PathOf(digest);
  const std::string partial = absl::StrCat(path, ".", getpid(), ".partial");
  const auto write = [&]() -> absl::Status {
    TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(partial, O_WRONLY | O_CREAT | O_TRUNC, 0600));
    while (true) {
      // The end comes only once the bytes were found to have the digest.
      TY_ASSIGN_OR_RETURN(const absl::string_view block, reader.Read());
      if (block.empty()) return absl::OkStatus();
      TY_RETURN_IF_ERROR(WriteFully(fd.get(), block, partial));
    }
  };
  if (absl::Status written = write(); !written.ok()) {
    (void)unlink(partial.c_str());
    return written;
  }
  if (rename(partial.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "cannot rename", path);
  cache.MakeRoom(path);
  return path;
}

absl::StatusOr<spec_loader::SpecText> ReadBundleSpec(const Context& context,
                                                     const std::string& source) {
  TY_ASSIGN_OR_RETURN(BundleFile file, BundleFile::Open(context, source, ""));
  bundle::BundleReader& reader = file.reader();
  PartReader parts(source);
  v1::Job job;
  auto code = std::make_shared<spec_loader::SpecCode>();
  bool is_past_code = false;
  while (!is_past_code) {
    TY_ASSIGN_OR_RETURN(const bundle::BundleEntry* entry, reader.Next());
    if (entry == nullptr) break;
    switch (bundle::ParsePartName(entry->name).part) {
      case bundle::Part::kJob: {
        TY_ASSIGN_OR_RETURN(const std::string text, reader.ReadAll());
        TY_RETURN_IF_ERROR(parts.Read(entry->name, text, job));
        break;
      }
      case bundle::Part::kCode: {
        code->digest = entry->hash;
        TY_ASSIGN_OR_RETURN(code->archive, KeepCode(context, entry->hash, reader));
        break;
      }
      case bundle::Part::kCodeDiff: {
        TY_ASSIGN_OR_RETURN(code->diff, reader.ReadAll());
        break;
      }
      default:
        is_past_code = true;
    }
  }
  for (const std::string& warning : reader.warnings()) context.Say(warning);
  if (const std::string warning = parts.Warning(); !warning.empty()) context.Say(warning);
  v1::JobSpec spec = job.resolved_spec();
  if (spec.name().empty()) return error::BundleRefused(source, "it has no job.json with a spec");
  if (spec.data().digest().empty() && !job.provenance().data_digest().empty()) {
    spec.mutable_data()->set_digest(job.provenance().data_digest());
  }
  for (const std::string& sentence : DropForeign(spec)) {
    context.Say(absl::StrCat("warning: ", sentence));
  }
  spec_loader::SpecText text;
  text.name = source;
  text.text = output::SpecYaml(spec);
  if (!code->digest.empty()) {
    code->origin = job.provenance().code();
    if (code->diff.empty()) code->origin.clear_diff_digest();
    text.code = std::move(code);
  }
  return text;
}

}  // namespace trainyard::commands
