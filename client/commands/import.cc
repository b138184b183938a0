// import takes a job in that ran elsewhere. It reads the bundle once, from its beginning to its
// end, and sends each part as it comes; what an earlier import has sent already is passed over.
#include <algorithm>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/commands/bundle_parts.h"
#include "client/commands/bundle_spec.h"
#include "client/commands/code_sender.h"
#include "client/commands/transfer_bar.h"
#include "client/commands/verbs.h"
#include "client/output/text.h"
#include "common/base/backoff.h"
#include "common/base/bundle_errors.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/rpc/deterministic.h"
#include "common/tls/digest.h"
#include "trainyard/v1/bundle.pb.h"

namespace trainyard::commands {
namespace {

struct ImportFlags {
  std::string source;
  std::string checkpoints = "all";
  std::string project;
  bool dry_run = false;
};

// If the server restarts during an import, it is back within this time.
constexpr absl::Duration kImportRetryFor = absl::Seconds(30);
constexpr size_t kFileChunk = size_t{1} << 20;
constexpr int kPointsOfCall = 5000;
constexpr size_t kBytesOfCall = size_t{512} << 10;
constexpr size_t kLineBytesMax = size_t{64} << 10;
constexpr int kHistoryMax = 1000;  // attempts and events that the server takes
constexpr size_t kRequestBytesMax = size_t{3} << 20;
// The server hashes what it has got.
constexpr absl::Duration kCommitTimeout = absl::Hours(1);

// Removes what only the other server needs, and what is too much.
void Trim(v1::ImportJobRequest& request) {
  v1::Job& job = *request.mutable_job();
  job.clear_stored();
  job.clear_etag();
  job.clear_queue_reasons();
  job.clear_placement();
  job.clear_warnings();
  job.clear_explanation();
  for (v1::Attempt& attempt : *request.mutable_attempts()) attempt.clear_environment();
  const auto keep_newest = [](auto& list, int count) {
    if (list.size() > count) list.DeleteSubrange(0, list.size() - count);
  };
  keep_newest(*request.mutable_attempts(), kHistoryMax);
  keep_newest(*request.mutable_events(), kHistoryMax);
  while (request.ByteSizeLong() > kRequestBytesMax && request.events_size() > 0) {
    keep_newest(*request.mutable_events(), request.events_size() / 2);
  }
}

// The same bundle gives the same id, so that an import that is repeated goes on.
std::string ImportIdOf(const v1::ImportJobRequest& request) {
  const std::string digest = tls::Sha256Text(rpc::DeterministicBytes(request));
  return tls::Sha256Digits(digest)->substr(0, 48);
}

// Cuts what comes in blocks into lines.
class Lines {
 public:
  void Add(absl::string_view block) { absl::StrAppend(&rest_, block); }
  // Takes the next line that is complete.
  bool Take(std::string& line) {
    const size_t end = rest_.find('\n', begin_);
    if (end == std::string::npos) {
      rest_.erase(0, begin_);
      begin_ = 0;
      return false;
    }
    line = rest_.substr(begin_, end - begin_);
    begin_ = end + 1;
    return true;
  }
  size_t unfinished() const { return rest_.size() - begin_; }

 private:
  std::string rest_;
  size_t begin_ = 0;
};

class Importer {
 public:
  Importer(const Context& context, const ImportFlags& flags, link::ServerLink& link,
           bundle::BundleReader& reader)
      : context_(context), flags_(flags), link_(link), reader_(reader), parts_(flags.source) {}

  absl::StatusOr<v1::Job> Run() {
    const absl::Status taken = TakeAll();
    bar_.reset();
    if (!taken.ok() && is_made_) {
      return Annotate(taken, absl::StrCat(job_.name(),
                                          " is there and not complete; the same command goes on "
                                          "once this is solved"));
    }
    TY_RETURN_IF_ERROR(taken);
    return job_;
  }

  int64_t points() const { return points_; }
  const std::vector<int64_t>& committed() const { return committed_; }
  int64_t left_out() const { return left_out_; }

 private:
  // Calls until the server answers, since it may be starting again.
  template <typename Method, typename Request>
  auto Call(Method method, const Request& request, absl::Duration timeout = link::kCallTimeout) {
    Backoff backoff(absl::Milliseconds(200), absl::Seconds(2), context_.rng);
    const absl::Duration begin = context_.clock.Uptime();
    auto response = link_.Call(method, request, timeout);
    while (absl::IsUnavailable(response.status()) &&
           context_.clock.Uptime() - begin < kImportRetryFor &&
           !context_.interrupt.WaitFor(backoff.Next())) {
      response = link_.Call(method, request, timeout);
    }
    return response;
  }

  absl::Status TakeAll() {
    while (true) {
      TY_ASSIGN_OR_RETURN(const bundle::BundleEntry* entry, reader_.Next());
      if (entry == nullptr) return Begin();
      TY_RETURN_IF_ERROR(Take(*entry));
      if (flags_.dry_run && is_begun_) return absl::OkStatus();
    }
  }

  absl::Status Take(const bundle::BundleEntry& entry) {
    const bundle::PartName name = bundle::ParsePartName(entry.name);
    const bool is_head = name.part != bundle::Part::kMetrics &&
                         name.part != bundle::Part::kCheckpointFile &&
                         name.part != bundle::Part::kLog;
    if (is_head && is_begun_) {
      return error::BundleRefused(
          flags_.source, absl::StrCat("'", entry.name, "' stands behind metrics or checkpoints"));
    }
    if (!is_head) {
      TY_RETURN_IF_ERROR(Begin());
      if (flags_.dry_run) return absl::OkStatus();
    }
    switch (name.part) {
      case bundle::Part::kJob:
        return ReadPart(entry, job_);
      case bundle::Part::kAttempts:
        return ReadPart(entry, attempts_);
      case bundle::Part::kCheckpoints:
        return ReadPart(entry, checkpoints_);
      case bundle::Part::kEvents:
        return ReadEvents();
      case bundle::Part::kCode: {
        code_.digest = entry.hash;
        TY_ASSIGN_OR_RETURN(code_.archive, KeepCode(context_, entry.hash, reader_));
        return absl::OkStatus();
      }
      case bundle::Part::kCodeDiff: {
        TY_ASSIGN_OR_RETURN(code_.diff, reader_.ReadAll());
        return absl::OkStatus();
      }
      case bundle::Part::kMetrics:
        return SendMetrics();
      case bundle::Part::kCheckpointFile:
        return SendFile(entry, name);
      case bundle::Part::kLog:
      case bundle::Part::kUnknown:
        break;
    }
    return absl::OkStatus();
  }

  absl::Status ReadPart(const bundle::BundleEntry& entry, google::protobuf::Message& message) {
    TY_ASSIGN_OR_RETURN(const std::string text, reader_.ReadAll());
    return parts_.Read(entry.name, text, message);
  }

  absl::Status ReadEvents() {
    TY_ASSIGN_OR_RETURN(const std::string text, reader_.ReadAll());
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      TY_RETURN_IF_ERROR(parts_.Read(bundle::kEventsName, line, *events_.add_events()));
    }
    return absl::OkStatus();
  }

  // Makes the job, once all is read that it needs.
  absl::Status Begin() {
    if (is_begun_) return absl::OkStatus();
    for (const std::string& warning : reader_.warnings()) context_.Say(warning);
    if (const std::string warning = parts_.Warning(); !warning.empty()) context_.Say(warning);
    if (job_.resolved_spec().name().empty()) {
      return error::BundleRefused(flags_.source, "it has no job.json with a spec");
    }
    is_begun_ = true;
    TY_RETURN_IF_ERROR(SendCode());
    v1::ImportJobRequest request;
    request.mutable_job()->Swap(&job_);
    request.mutable_attempts()->Swap(attempts_.mutable_attempts());
    request.mutable_events()->Swap(events_.mutable_events());
    if (!flags_.project.empty()) {
      const std::string project = flags_.project == "none" ? "" : flags_.project;
      request.mutable_job()->mutable_spec()->set_project(project);
      request.mutable_job()->mutable_resolved_spec()->set_project(project);
    }
    Trim(request);
    request.set_request_id(ImportIdOf(request));
    request.set_validate_only(flags_.dry_run);
    job_.Clear();
    TY_ASSIGN_OR_RETURN(v1::Job made, Call(&v1::BundleService::Stub::ImportJob, request));
    job_ = std::move(made);
    is_made_ = !flags_.dry_run;
    for (const std::string& warning : job_.warnings()) {
      context_.err << context_.terminal.Style("1;33", "warning:") << " " << warning << "\n";
    }
    ChooseCheckpoints();
    return absl::OkStatus();
  }

  absl::Status SendCode() {
    const std::string& wanted = job_.resolved_spec().program().code();
    if (wanted.empty() || flags_.dry_run) return absl::OkStatus();
    if (code_.digest != wanted) {
      // The server may have it, or else says that it has not.
      context_.Say("warning: the bundle does not hold the code of its job");
      return absl::OkStatus();
    }
    code_.origin = job_.provenance().code();
    if (code_.diff.empty() || tls::Sha256Text(code_.diff) != code_.origin.diff_digest()) {
      code_.diff.clear();
      job_.mutable_provenance()->mutable_code()->clear_diff_digest();
    }
    return CodeSender(context_, &link_).SendArchive(code_);
  }

  void ChooseCheckpoints() {
    for (const v1::Checkpoint& checkpoint : checkpoints_.checkpoints()) {
      const bool is_chosen = flags_.checkpoints == "all" || flags_.checkpoints == "latest" ||
                             (flags_.checkpoints == "best" && checkpoint.is_best());
      if (!is_chosen) continue;
      if (flags_.checkpoints == "latest") chosen_.clear();
      chosen_[checkpoint.step()] = &checkpoint;
    }
    left_out_ = checkpoints_.checkpoints_size() - static_cast<int64_t>(chosen_.size());
    for (const auto& [step, checkpoint] : chosen_) {
      for (const v1::CheckpointFile& file : checkpoint->files()) chosen_bytes_ += file.size();
    }
    if (chosen_bytes_ > 0) bar_.emplace(context_, job_.name(), chosen_bytes_);
  }

  absl::Status SendMetrics() {
    v1::AppendImportedMetricsRequest request;
    request.set_name(job_.name());
    // Without points, the call asks how many are there.
    TY_ASSIGN_OR_RETURN(const v1::AppendImportedResponse there,
                        Call(&v1::BundleService::Stub::AppendImportedMetrics, request));
    int64_t to_skip = there.next_offset();
    request.set_offset(there.next_offset());
    points_ = there.next_offset();
    size_t bytes = 0;
    Lines lines;
    std::string line;
    while (true) {
      TY_ASSIGN_OR_RETURN(const absl::string_view block, reader_.Read());
      if (block.empty()) break;
      lines.Add(block);
      while (lines.Take(line)) {
        if (to_skip > 0) {
          --to_skip;
          continue;
        }
        TY_ASSIGN_OR_RETURN(*request.add_points(), parts_.ReadPoint(line));
        bytes += line.size();
        if (request.points_size() < kPointsOfCall && bytes < kBytesOfCall) continue;
        TY_RETURN_IF_ERROR(SendPoints(request));
        bytes = 0;
      }
      if (lines.unfinished() > kLineBytesMax) {
        return error::BundleRefused(flags_.source, "metrics.jsonl has a line without an end");
      }
    }
    if (lines.unfinished() > 0) {
      return error::BundleRefused(flags_.source, "metrics.jsonl ends within a line");
    }
    return SendPoints(request);
  }

  absl::Status SendPoints(v1::AppendImportedMetricsRequest& request) {
    if (request.points().empty()) return absl::OkStatus();
    TY_ASSIGN_OR_RETURN(const v1::AppendImportedResponse response,
                        Call(&v1::BundleService::Stub::AppendImportedMetrics, request));
    request.set_offset(response.next_offset());
    request.clear_points();
    points_ = response.next_offset();
    return absl::OkStatus();
  }

  absl::Status SendFile(const bundle::BundleEntry& entry, const bundle::PartName& name) {
    const auto chosen = chosen_.find(name.step);
    if (chosen == chosen_.end()) return absl::OkStatus();
    const v1::Checkpoint& checkpoint = *chosen->second;
    const v1::CheckpointFile* file = nullptr;
    for (const v1::CheckpointFile& one : checkpoint.files()) {
      if (one.name() == name.file && one.size() == entry.size) file = &one;
    }
    if (file == nullptr) {
      return error::BundleRefused(
          flags_.source, absl::StrCat("checkpoints.json does not name '", entry.name, "' with ",
                                      entry.size, " bytes"));
    }
    TY_RETURN_IF_ERROR(SendBytes(checkpoint, *file));
    sent_[name.step].insert(name.file);
    if (sent_[name.step].size() < static_cast<size_t>(checkpoint.files_size())) {
      return absl::OkStatus();
    }
    v1::CommitImportedCheckpointRequest request;
    request.set_name(NameOf(checkpoint));
    *request.mutable_files() = checkpoint.files();
    *request.mutable_create_time() = checkpoint.create_time();
    *request.mutable_metrics() = checkpoint.metrics();
    TY_RETURN_IF_ERROR(
        Call(&v1::BundleService::Stub::CommitImportedCheckpoint, request, kCommitTimeout).status());
    committed_.push_back(name.step);
    return absl::OkStatus();
  }

  std::string NameOf(const v1::Checkpoint& checkpoint) const {
    return absl::StrCat(job_.name(), "/checkpoints/", checkpoint.step());
  }

  // Sends the file that the reader stands at, from where the server has stopped.
  absl::Status SendBytes(const v1::Checkpoint& checkpoint, const v1::CheckpointFile& file) {
    v1::AppendImportedFileRequest request;
    request.set_name(NameOf(checkpoint));
    *request.mutable_file() = file;
    TY_ASSIGN_OR_RETURN(const v1::AppendImportedResponse there,
                        Call(&v1::BundleService::Stub::AppendImportedFile, request));
    int64_t position = 0;  // in the file
    const int64_t begin = there.next_offset();
    if (bar_.has_value()) bar_->Skip(begin);
    request.set_offset(begin);
    std::string& data = *request.mutable_data();
    const auto send = [&]() -> absl::Status {
      if (data.empty()) return absl::OkStatus();
      const auto size = static_cast<int64_t>(data.size());
      TY_ASSIGN_OR_RETURN(const v1::AppendImportedResponse response,
                          Call(&v1::BundleService::Stub::AppendImportedFile, request));
      if (bar_.has_value()) bar_->Add(size);
      // Another import may have sent the rest meanwhile.
      request.set_offset(std::max(request.offset() + size, response.next_offset()));
      data.clear();
      return absl::OkStatus();
    };
    while (true) {
      TY_ASSIGN_OR_RETURN(absl::string_view block, reader_.Read());
      if (block.empty()) break;
      const int64_t end = position + static_cast<int64_t>(block.size());
      const int64_t wanted = request.offset() + static_cast<int64_t>(data.size());
      if (end > wanted) {
        block.remove_prefix(static_cast<size_t>(std::max<int64_t>(wanted - position, 0)));
        while (!block.empty()) {
          const absl::string_view part = block.substr(0, kFileChunk - data.size());
          absl::StrAppend(&data, part);
          block.remove_prefix(part.size());
          if (data.size() == kFileChunk) TY_RETURN_IF_ERROR(send());
        }
      }
      position = end;
    }
    return send();
  }

  const Context& context_;
  const ImportFlags& flags_;
  link::ServerLink& link_;
  bundle::BundleReader& reader_;
  PartReader parts_;
  v1::Job job_;  // from the bundle, and then the one that was made
  v1::ListAttemptsResponse attempts_;
  v1::ListEventsResponse events_;
  v1::ListCheckpointsResponse checkpoints_;
  spec_loader::SpecCode code_;
  bool is_begun_ = false;                            // the head of the bundle was read
  bool is_made_ = false;                             // the job is there
  std::map<int64_t, const v1::Checkpoint*> chosen_;  // by step
  std::map<int64_t, std::set<std::string>> sent_;
  std::vector<int64_t> committed_;
  std::optional<TransferBar> bar_;
  int64_t chosen_bytes_ = 0;
  int64_t points_ = 0;
  int64_t left_out_ = 0;
};

Result Import(const Context& context, const ImportFlags& flags) {
  TY_ASSIGN_OR_RETURN(BundleFile file, BundleFile::Open(context, flags.source, flags.checkpoints));
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  const bundle::Manifest& manifest = file.reader().manifest();
  Importer importer(context, flags, *link, file.reader());
  TY_ASSIGN_OR_RETURN(const v1::Job job, importer.Run());
  if (flags.dry_run) {
    if (!PrintOne(context, job, job.resolved_spec().name())) {
      context.out << manifest.job << " of " << manifest.user << ", '" << manifest.title
                  << "', from " << manifest.server << ", " << manifest.time << "\n";
      for (const bundle::BundleEntry& entry : manifest.entries) {
        context.out << "  " << entry.name << "  " << FormatBytes(entry.size) << "\n";
      }
    }
    context.Say("the server would take it in; nothing was imported");
    return link::kOk;
  }
  if (!PrintOne(context, job, job.name())) context.out << job.name() << "\n" << std::flush;
  const std::string id = output::ShortName(job.name());
  context.Say(absl::StrCat(
      "imported '", job.resolved_spec().name(), "' (", manifest.job, " of ", manifest.user,
      ") with ", FormatCount(importer.points()), " points and ",
      Counted(importer.committed().size(), "checkpoint"),
      importer.left_out() > 0 ? absl::StrCat(", without ", importer.left_out(), " more") : "",
      "; trainyard metrics ", id, " draws it, and trainyard clone ", id, " runs it again"));
  return link::kOk;
}

}  // namespace

void AddImport(VerbTable& verbs) {
  verbs.Add<ImportFlags>(
      "import", "Take a job in that was exported from another server",
      "resnet.trainyard --checkpoint best\n"
      "  trainyard import https://models.example/resnet.trainyard\n"
      "  trainyard import lab:jobs/12         from the server of the context lab",
      [](client::Flags& flags, ImportFlags& options) {
        flags
            .Word("FILE", options.source,
                  "Bundle that `trainyard export` has written, its URL, or CONTEXT:jobs/12; - for "
                  "standard input")
            .Required();
        flags
            .Value("--checkpoint", options.checkpoints,
                   "Checkpoints of the bundle that are taken: none, best, latest or all (all)")
            .OneOf({"none", "best", "latest", "all"});
        flags.Value("--project", options.project,
                    "Project to which the job is accounted here; none for none");
        flags.Switch("--dry-run", options.dry_run,
                     "Only ask the server if it would take the job, and list what is in the file");
      },
      Import);
}

}  // namespace trainyard::commands
