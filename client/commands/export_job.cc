// All parts are gathered first: small ones in memory, and large ones in a folder. Then they are
// written in one go.
#include "client/commands/export_job.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <map>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/bundle_parts.h"
#include "client/commands/checkpoint_files.h"
#include "client/commands/code_files.h"
#include "client/commands/transfer_bar.h"
#include "client/output/text.h"
#include "common/base/checkpoint_file.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/base/version.h"
#include "common/bundle/writer.h"
#include "common/rpc/channel.h"
#include "common/tls/digest.h"

namespace trainyard::commands {
namespace {

constexpr absl::Duration kPartStreamTimeout = absl::Hours(24);
constexpr int64_t kHashBlock = int64_t{1} << 20;

// A folder that is removed in the end.
class Spool {
 public:
  Spool() = default;
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;
  ~Spool() {
    if (!path_.empty()) (void)RemoveTree(path_);
  }
  // Makes the folder beside the file, whose disk has to have the room anyway.
  absl::Status Make(const std::string& file) {
    if (file == "-") {
      TY_ASSIGN_OR_RETURN(path_, MakeTemporaryDirectory());
      return absl::OkStatus();
    }
    path_ = absl::StrCat(file, ".", getpid(), ".parts");
    return MakeDirectories(path_, 0700);
  }
  std::string File(const std::string& name) const { return JoinPath(path_, name); }

 private:
  std::string path_;
};

// A part with its bytes: a text, or the file at `path` if that is given.
struct GatheredPart {
  bundle::BundleEntry entry;
  std::string text;
  std::string path;
};

// Returns the points of a metric as QueryMetrics gives them: ascending, one for each step, and each
// attempt cut off at the first step of any newer one.
std::vector<v1::MetricPoint> Merged(std::vector<v1::MetricPoint> points) {
  std::map<int32_t, int64_t> first_steps;  // by attempt
  for (const v1::MetricPoint& point : points) {
    const auto [it, is_new] = first_steps.emplace(point.attempt(), point.step());
    if (!is_new) it->second = std::min(it->second, point.step());
  }
  std::map<int32_t, int64_t> cuts;
  int64_t cut = std::numeric_limits<int64_t>::max();
  for (auto it = first_steps.rbegin(); it != first_steps.rend(); ++it) {
    cuts[it->first] = cut;
    cut = std::min(cut, it->second);
  }
  std::erase_if(points, [&cuts](const v1::MetricPoint& point) {
    return point.step() >= cuts.at(point.attempt());
  });
  std::stable_sort(points.begin(), points.end(),
                   [](const auto& a, const auto& b) { return a.step() < b.step(); });
  // If several points have the same step, the last one is kept.
  std::vector<v1::MetricPoint> merged;
  for (v1::MetricPoint& point : points) {
    if (!merged.empty() && merged.back().step() == point.step()) merged.pop_back();
    merged.push_back(std::move(point));
  }
  return merged;
}

class Exporter {
 public:
  Exporter(const Context& context, link::ServerLink& link, std::string job,
           const ExportOptions& options, std::string path)
      : context_(context),
        link_(link),
        name_(std::move(job)),
        options_(options),
        path_(std::move(path)) {}

  absl::StatusOr<Exported> Run() {
    TY_RETURN_IF_ERROR(spool_.Make(path_));
    TY_RETURN_IF_ERROR(GatherJob());
    TY_RETURN_IF_ERROR(GatherCode());
    TY_RETURN_IF_ERROR(GatherHistory());
    std::vector<v1::Checkpoint> checkpoints;
    TY_ASSIGN_OR_RETURN(checkpoints, ChosenCheckpoints());
    TY_RETURN_IF_ERROR(GatherMetrics());
    TY_RETURN_IF_ERROR(GatherCheckpoints(checkpoints));
    if (options_.has_logs) TY_RETURN_IF_ERROR(GatherLogs());
    TY_RETURN_IF_ERROR(Write());
    return std::move(result_);
  }

 private:
  void AddText(const std::string& name, std::string text) {
    GatheredPart part;
    part.entry = {name, static_cast<int64_t>(text.size()), tls::Sha256Text(text)};
    part.text = std::move(text);
    parts_.push_back(std::move(part));
  }

  absl::Status AddFile(const std::string& name, const std::string& path) {
    GatheredPart part;
    part.path = path;
    part.entry.name = name;
    tls::Sha256Hasher hasher;
    while (true) {
      TY_ASSIGN_OR_RETURN(const std::string block,
                          ReadFileRange(path, part.entry.size, kHashBlock));
      if (block.empty()) break;
      hasher.Update(block);
      part.entry.size += static_cast<int64_t>(block.size());
    }
    part.entry.hash = hasher.Text();
    parts_.push_back(std::move(part));
    return absl::OkStatus();
  }

  absl::Status GatherJob() {
    v1::GetJobRequest request;
    request.set_name(name_);
    TY_ASSIGN_OR_RETURN(result_.job, link_.Call(&v1::JobService::Stub::GetJob, request));
    AddText(bundle::kJobName, PartText(result_.job));
    return absl::OkStatus();
  }

  absl::Status GatherCode() {
    if (result_.job.resolved_spec().program().code().empty()) return absl::OkStatus();
    TY_ASSIGN_OR_RETURN(const std::string archive, FetchCode(context_, link_, name_));
    TY_RETURN_IF_ERROR(AddFile(bundle::kCodeName, archive));
    result_.has_code = true;
    TY_ASSIGN_OR_RETURN(std::string diff, FetchCodeDiff(context_, link_, result_.job));
    if (!diff.empty()) AddText(bundle::kCodeDiffName, std::move(diff));
    return absl::OkStatus();
  }

  absl::Status GatherHistory() {
    v1::ListAttemptsRequest attempts;
    attempts.set_parent(name_);
    TY_ASSIGN_OR_RETURN(const v1::ListAttemptsResponse found,
                        link_.Call(&v1::JobService::Stub::ListAttempts, attempts));
    AddText(bundle::kAttemptsName, PartText(found));
    v1::ListEventsRequest events;
    events.set_parent(name_);
    events.set_page_size(1000);
    std::string lines;
    while (true) {
      TY_ASSIGN_OR_RETURN(const v1::ListEventsResponse page,
                          link_.Call(&v1::JobService::Stub::ListEvents, events));
      for (const v1::Event& event : page.events()) lines += PartText(event);
      if (page.next_page_token().empty()) break;
      events.set_page_token(page.next_page_token());
    }
    AddText(bundle::kEventsName, std::move(lines));
    return absl::OkStatus();
  }

  // Chooses the checkpoints, and lists them. Damaged ones are of no use to anybody.
  absl::StatusOr<std::vector<v1::Checkpoint>> ChosenCheckpoints() {
    v1::ListCheckpointsRequest request;
    request.set_parent(name_);
    TY_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse all,
                        link_.Call(&v1::CheckpointService::Stub::ListCheckpoints, request));
    v1::ListCheckpointsResponse chosen;
    for (const v1::Checkpoint& checkpoint : all.checkpoints()) {
      if (!checkpoint.damage().empty()) {
        context_.Say(absl::StrCat("warning: ", checkpoint.name(),
                                  " is damaged and left out: ", checkpoint.damage()));
        continue;
      }
      if (options_.checkpoints == "none") continue;
      if (options_.checkpoints == "best" && !checkpoint.is_best()) continue;
      if (options_.checkpoints == "latest") chosen.clear_checkpoints();
      *chosen.add_checkpoints() = checkpoint;
    }
    result_.checkpoints = chosen.checkpoints_size();
    result_.checkpoints_left = all.checkpoints_size() - chosen.checkpoints_size();
    if (options_.checkpoints == "best" && chosen.checkpoints().empty()) {
      return absl::NotFoundError(absl::StrCat(
          name_, " has no checkpoint that was evaluated; --checkpoint latest takes the newest"));
    }
    if (!chosen.checkpoints().empty()) AddText(bundle::kCheckpointsName, PartText(chosen));
    return std::vector<v1::Checkpoint>(chosen.checkpoints().begin(), chosen.checkpoints().end());
  }

  // Writes the points into a file, in the order of their steps. Where attempts overlap, the points
  // of the newest one count, as for QueryMetrics.
  absl::Status GatherMetrics() {
    if (!options_.has_metrics) return absl::OkStatus();
    v1::WatchMetricsRequest request;
    request.set_name(name_);
    grpc::ClientContext call;
    rpc::SetTimeout(call, kPartStreamTimeout);
    const link::Interrupt::Scope scope(link_.interrupt(), call);
    const auto reader = link_.jobs().WatchMetrics(&call, request);
    std::map<std::string, std::vector<v1::MetricPoint>> series;
    v1::WatchMetricsResponse page;
    while (reader->Read(&page)) {
      for (v1::MetricPoint& point : *page.mutable_points()) {
        series[point.name()].push_back(std::move(point));
      }
    }
    const grpc::Status status = reader->Finish();
    if (!status.ok()) return link_.Error(status);
    std::vector<const v1::MetricPoint*> sorted;
    for (auto& [metric, points] : series) {
      points = Merged(std::move(points));
      for (const v1::MetricPoint& point : points) sorted.push_back(&point);
    }
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto* a, const auto* b) { return a->step() < b->step(); });
    if (sorted.empty()) return absl::OkStatus();
    result_.points = static_cast<int64_t>(sorted.size());
    const std::string path = spool_.File(bundle::kMetricsName);
    {
      TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_WRONLY | O_CREAT, 0600));
      std::string lines;
      for (const v1::MetricPoint* point : sorted) {
        lines += PointLine(*point);
        if (static_cast<int64_t>(lines.size()) < kHashBlock) continue;
        TY_RETURN_IF_ERROR(WriteFully(fd.get(), lines, path));
        lines.clear();
      }
      TY_RETURN_IF_ERROR(WriteFully(fd.get(), lines, path));
    }
    return AddFile(bundle::kMetricsName, path);
  }

  absl::Status GatherCheckpoints(const std::vector<v1::Checkpoint>& checkpoints) {
    int64_t total = 0;
    for (const v1::Checkpoint& checkpoint : checkpoints) {
      for (const v1::CheckpointFile& file : checkpoint.files()) total += file.size();
    }
    TransferBar bar(context_, name_, total);
    for (const v1::Checkpoint& checkpoint : checkpoints) {
      for (const v1::CheckpointFile& file : checkpoint.files()) {
        // We trust the server with content, but not with paths.
        if (!IsCheckpointFileName(file.name())) {
          return error::CorruptFile(checkpoint.name(),
                                    absl::StrCat("'", file.name(), "' is not a plain file name"));
        }
        const std::string name = bundle::CheckpointFileName(checkpoint.step(), file.name());
        const std::string path = spool_.File(name);
        TY_RETURN_IF_ERROR(FetchFile(context_, link_, FilesOf(link_, checkpoint), file, path, name,
                                     [&bar](int64_t bytes) { bar.Add(bytes); }));
        TY_RETURN_IF_ERROR(AddFile(name, path));
      }
    }
    return absl::OkStatus();
  }

  absl::Status GatherLogs() {
    v1::TailLogsRequest request;
    request.set_name(name_);
    grpc::ClientContext call;
    rpc::SetTimeout(call, kPartStreamTimeout);
    const link::Interrupt::Scope scope(link_.interrupt(), call);
    const auto reader = link_.jobs().TailLogs(&call, request);
    std::map<int32_t, std::string> paths;
    TY_RETURN_IF_ERROR(MakeDirectories(spool_.File("logs"), 0700));
    v1::TailLogsResponse chunk;
    absl::Status failed;
    while (failed.ok() && reader->Read(&chunk)) {
      const std::string path = spool_.File(bundle::LogName(chunk.rank()));
      paths[chunk.rank()] = path;
      const auto fd = OpenFile(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
      failed = fd.ok() ? WriteFully(fd->get(), chunk.data(), path) : fd.status();
    }
    if (!failed.ok()) call.TryCancel();
    const grpc::Status status = reader->Finish();
    TY_RETURN_IF_ERROR(failed);
    if (!status.ok()) return link_.Error(status);
    for (const auto& [rank, path] : paths) {
      TY_RETURN_IF_ERROR(AddFile(bundle::LogName(rank), path));
    }
    return absl::OkStatus();
  }

  bundle::Manifest ManifestOf() const {
    bundle::Manifest manifest;
    manifest.version = Version();
    manifest.time = absl::FormatTime(absl::RFC3339_sec, context_.clock.Now(), absl::UTCTimeZone());
    manifest.server = link_.address();
    manifest.job = result_.job.name();
    manifest.uid = result_.job.uid();
    manifest.title = result_.job.resolved_spec().name();
    manifest.user = result_.job.user();
    for (const GatheredPart& part : parts_) manifest.entries.push_back(part.entry);
    return manifest;
  }

  absl::Status WriteParts(const tar::Sink& sink) {
    TY_ASSIGN_OR_RETURN(const auto writer, bundle::BundleWriter::Create(sink, ManifestOf()));
    for (const GatheredPart& part : parts_) {
      if (part.path.empty()) {
        TY_RETURN_IF_ERROR(writer->AddText(part.text));
        continue;
      }
      TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(part.path, O_RDONLY));
      TY_RETURN_IF_ERROR(writer->Add(tar::SourceOf(fd.get(), part.path)));
      if (context_.interrupt.triggered()) return absl::CancelledError("interrupted");
    }
    return writer->Finish();
  }

  absl::Status Write() {
    if (path_ == "-") {
      return WriteParts([this](absl::string_view bytes) -> absl::Status {
        context_.raw_out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        result_.bytes += static_cast<int64_t>(bytes.size());
        return context_.raw_out.good() ? absl::OkStatus()
                                       : absl::DataLossError("the output cannot be written");
      });
    }
    const std::string partial = absl::StrCat(path_, ".", getpid(), ".part");
    const auto write = [&]() -> absl::Status {
      TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(partial, O_WRONLY | O_CREAT | O_TRUNC));
      TY_RETURN_IF_ERROR(WriteParts([&](absl::string_view bytes) {
        result_.bytes += static_cast<int64_t>(bytes.size());
        return WriteFully(fd.get(), bytes, partial);
      }));
      if (fsync(fd.get()) != 0) return ErrnoStatus(errno, "cannot write", partial);
      if (rename(partial.c_str(), path_.c_str()) != 0) {
        return ErrnoStatus(errno, "cannot rename to", path_);
      }
      return absl::OkStatus();
    };
    absl::Status written = write();
    if (!written.ok()) (void)unlink(partial.c_str());
    return written;
  }

  const Context& context_;
  link::ServerLink& link_;
  const std::string name_;
  const ExportOptions options_;
  const std::string path_;
  Spool spool_;
  std::vector<GatheredPart> parts_;
  Exported result_;
};

}  // namespace

absl::StatusOr<Exported> ExportJob(const Context& context, link::ServerLink& link,
                                   const std::string& job, const ExportOptions& options,
                                   const std::string& path) {
  return Exporter(context, link, job, options, path).Run();
}

}  // namespace trainyard::commands
