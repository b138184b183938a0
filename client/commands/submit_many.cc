// Submits thousands of specs over one stream, because a call for each of them would wait for the
// network thousands of times.
#include "client/commands/submit_many.h"

#include <deque>
#include <memory>
#include <ostream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/commands/code_sender.h"
#include "client/commands/load_spec.h"
#include "client/commands/memory_need.h"
#include "client/link/exit_code.h"
#include "common/base/backoff.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/rpc/channel.h"

namespace trainyard::commands {
namespace {

using spec_loader::SpecFile;
using spec_loader::SpecText;

// The limits of one message, and of the messages that have no answer yet. The server reads further
// ahead than this, so a write never waits until we read.
constexpr int kItems = 128;
constexpr size_t kBytesMax = size_t{2} << 20;
constexpr size_t kMessagesUnderWay = 4;
// This many refusals are printed one by one. Further ones are only counted.
constexpr int64_t kRefusalsTold = 20;
// A stream that takes longer than this is given up.
constexpr absl::Duration kStreamTimeout = absl::Hours(24);
constexpr absl::Duration kStreamRetryFor = absl::Seconds(30);
constexpr absl::Duration kSubmitDrawInterval = absl::Milliseconds(100);

// The documents that went into one message.
struct Message {
  v1::CreateJobsRequest request;
  std::vector<SpecFile> files;  // the files of the items
};

class Submitter {
 public:
  Submitter(const Context& context, link::ServerLink& link, const SubmitFlags& flags,
            const std::vector<SpecText>& texts, v1::SubmitOptions options)
      : context_(context),
        link_(link),
        flags_(flags),
        texts_(texts),
        options_(std::move(options)),
        sender_(context, &link),
        planner_(context.surroundings.binary_dir),
        prefix_(flags.request_id.empty() ? MakeUuid(context.rng) : flags.request_id) {}

  Result Run() {
    start_ = context_.clock.Uptime();
    TY_RETURN_IF_ERROR(Send());
    if (context_.terminal.err_is_terminal) context_.err << output::kLineStart << output::kClearRest;
    PrintList(context_, messages_, names_);
    const absl::Duration took = context_.clock.Uptime() - start_;
    const double rate = absl::ToDoubleSeconds(took) > 0
                            ? static_cast<double>(submitted_) / absl::ToDoubleSeconds(took)
                            : 0;
    context_.Say(absl::StrCat(
        "submitted ", FormatCount(submitted_), " of ",
        FormatCount(static_cast<int64_t>(texts_.size())), " documents",
        submitted_ > 1000
            ? absl::StrCat(" (", FormatCount(static_cast<int64_t>(rate)), " a second)")
            : "",
        refused_ == 0 ? ""
                      : absl::StrCat("; ", FormatCount(refused_), refused_ == 1 ? " was" : " were",
                                     " refused"),
        refused_ > kRefusalsTold ? absl::StrCat(", of which ", kRefusalsTold, " are listed above")
                                 : ""));
    return exit_code_;
  }

 private:
  // Sends everything over as many streams as it takes. If a stream breaks, the documents without an
  // answer are sent again, and their request ids keep the server from making second jobs.
  absl::Status Send() {
    Backoff backoff(absl::Milliseconds(200), absl::Seconds(2), context_.rng);
    absl::Duration broken_since = absl::InfiniteDuration();
    while (true) {
      const int64_t before = submitted_ + refused_;
      absl::Status status = SendOverOneStream();
      const absl::Duration now = context_.clock.Uptime();
      if (submitted_ + refused_ > before) broken_since = absl::InfiniteDuration();
      if (status.ok() || status.code() != absl::StatusCode::kUnavailable) return status;
      if (broken_since == absl::InfiniteDuration()) broken_since = now;
      if (now - broken_since > kStreamRetryFor || context_.interrupt.WaitFor(backoff.Next())) {
        return Annotate(status, absl::StrCat("after ", submitted_, " jobs"));
      }
    }
  }

  absl::Status SendOverOneStream() {
    grpc::ClientContext call;
    rpc::SetTimeout(call, kStreamTimeout);
    const link::Interrupt::Scope scope(link_.interrupt(), call);
    const auto stream = link_.jobs().CreateJobs(&call);
    size_t written = 0;  // how many messages of under_way_ were written
    bool is_open = true;
    while (is_open) {
      while (is_open && written < kMessagesUnderWay) {
        if (written == under_way_.size() && !Prepare()) break;
        is_open = stream->Write(under_way_[written]->request);
        if (is_open) ++written;
      }
      if (written == 0) break;
      v1::CreateJobsResponse response;
      if (!is_open || !stream->Read(&response)) break;
      Take(response);
      --written;
      Draw();
    }
    if (is_open) stream->WritesDone();
    v1::CreateJobsResponse rest;
    while (written > 0 && stream->Read(&rest)) {
      Take(rest);
      --written;
    }
    const grpc::Status status = stream->Finish();
    if (!status.ok()) return link_.Error(status);
    return under_way_.empty()
               ? absl::OkStatus()
               : error::ServerUnreachable(link_.address(), "it has ended the stream");
  }

  // Fills the next message, and returns false if no documents are left.
  bool Prepare() {
    auto message = std::make_unique<Message>();
    size_t bytes = 0;
    while (next_ < texts_.size() && message->request.requests_size() < kItems &&
           bytes < kBytesMax) {
      const size_t index = next_++;
      SpecFile file = spec_loader::ParseSpecText(texts_[index]);
      const auto changed = ApplyChanges(flags_.spec, file);
      if (!changed.ok() || !file.mistakes.empty()) {
        Refuse(file, changed.status());
        continue;
      }
      v1::SubmitOptions options = options_;
      options.set_saved_spec(file.saved_spec);
      if (const absl::Status sent = sender_.Send(file, file.spec, options); !sent.ok()) {
        Refuse(file, sent);
        continue;
      }
      v1::CreateJobRequest* item = message->request.add_requests();
      *item->mutable_spec() = file.spec;
      *item->mutable_options() = std::move(options);
      if (const auto need = planner_.NeedOf(file.spec); need.has_value()) {
        *item->mutable_options()->mutable_memory_need() = *need;
      }
      item->set_request_id(absl::StrCat(prefix_, "/", index));
      bytes += item->ByteSizeLong();
      message->files.push_back(std::move(file));
    }
    if (message->request.requests().empty()) return false;
    under_way_.push_back(std::move(message));
    return true;
  }

  void Take(const v1::CreateJobsResponse& response) {
    const std::unique_ptr<Message> message = std::move(under_way_.front());
    under_way_.pop_front();
    for (int i = 0; i < response.results_size(); ++i) {
      const v1::CreateJobResult& result = response.results(i);
      if (result.has_error()) {
        Refuse(message->files[static_cast<size_t>(i)], rpc::FromStatusProto(result.error()));
        continue;
      }
      ++submitted_;
      Warn(message->files[static_cast<size_t>(i)], result);
      Keep(result);
    }
  }

  // Names are printed as they come. JSON and YAML wait for all jobs.
  void Keep(const v1::CreateJobResult& result) {
    const Format format = context_.options.format;
    if (format == Format::kTable || format == Format::kWide || format == Format::kName) {
      if (context_.terminal.out_is_terminal && format != Format::kName) return;
      context_.out << result.name() << "\n";
      return;
    }
    results_.push_back(result);
    messages_.push_back(&results_.back());
    names_.push_back(result.name());
  }

  // Many documents of one file tend to have the same warning, which is printed once.
  void Warn(const SpecFile& file, const v1::CreateJobResult& result) {
    for (const std::string& warning : result.warnings()) {
      if (!warnings_.insert(warning).second) continue;
      if (context_.terminal.err_is_terminal) context_.err << "\r\x1b[K";
      context_.err << file.name << ":" << file.first_line + 1 << ": warning: " << warning << "\n";
    }
  }

  void Refuse(SpecFile& file, const absl::Status& status) {
    const auto violations = GetFieldViolations(status);
    // A mistake in a document outweighs what only the pool or a quota refuses.
    const bool is_mistake = status.ok() || !violations.empty();
    if (is_mistake || refused_ == 0) {
      exit_code_ = is_mistake ? link::kUsage : link::ExitCodeOf(status);
    }
    if (++refused_ > kRefusalsTold) return;
    if (context_.terminal.err_is_terminal) context_.err << output::kLineStart << output::kClearRest;
    spec_loader::AddViolations(file, violations, {});
    context_.err << spec_loader::RenderMistakes(file, context_.terminal.color);
    if (violations.empty() && !status.ok()) {
      context_.err << file.name << ":" << file.first_line + 1 << ": " << status.message() << "\n";
    }
  }

  void Draw() {
    const absl::Duration now = context_.clock.Uptime();
    if (!context_.terminal.err_is_terminal || context_.options.quiet ||
        now - drawn_ < kSubmitDrawInterval)
      return;
    drawn_ = now;
    context_.err << output::kLineStart << "submitted " << FormatCount(submitted_) << " of "
                 << FormatCount(static_cast<int64_t>(texts_.size())) << output::kClearRest
                 << std::flush;
  }

  const Context& context_;
  link::ServerLink& link_;
  const SubmitFlags& flags_;
  const std::vector<SpecText>& texts_;
  const v1::SubmitOptions options_;
  CodeSender sender_;
  MemoryPlanner planner_;
  const std::string prefix_;
  size_t next_ = 0;  // the next document
  // Messages that have no answer yet, whether they were written or not.
  std::deque<std::unique_ptr<Message>> under_way_;
  int64_t submitted_ = 0;
  int64_t refused_ = 0;
  link::ExitCode exit_code_ = link::kOk;
  std::deque<v1::CreateJobResult> results_;
  std::vector<const google::protobuf::Message*> messages_;
  std::vector<std::string> names_;
  std::set<std::string> warnings_;  // those that were printed
  absl::Duration start_;
  absl::Duration drawn_ = -absl::InfiniteDuration();
};

// Checks the files, and asks the server about each spec that has no mistake, if one answers.
class Checker {
 public:
  Checker(const Context& context, const SubmitFlags& flags)
      : context_(context), flags_(flags), planner_(context.surroundings.binary_dir) {}

  Result Run(const std::vector<SpecText>& texts) {
    TY_RETURN_IF_ERROR(FindServer());
    for (const SpecText& text : texts) {
      SpecFile file = spec_loader::ParseSpecText(text);
      TY_RETURN_IF_ERROR(ApplyChanges(flags_.spec, file).status());
      absl::Status refusal = absl::OkStatus();
      if (file.mistakes.empty() && link_ != nullptr) {
        TY_RETURN_IF_ERROR(Ask(file, refusal));
      }
      if (!file.mistakes.empty() || !refusal.ok()) Tell(file, refusal);
    }
    context_.Say(absl::StrCat(FormatCount(static_cast<int64_t>(texts.size()) - wrong_), " of ",
                              FormatCount(static_cast<int64_t>(texts.size())),
                              " documents are fine; nothing was submitted",
                              link_ == nullptr ? ", and no server was asked" : ""));
    return exit_code_;
  }

 private:
  absl::Status FindServer() {
    auto link = Connect(context_);
    if (!link.ok()) return absl::OkStatus();
    link_ = *std::move(link);
    TY_ASSIGN_OR_RETURN(options_, SubmitOptionsOf(context_, *link_, flags_));
    return absl::OkStatus();
  }

  // Finds out if the server would refuse the spec. Violations become mistakes of the file. Returns
  // an error if the server cannot be asked.
  absl::Status Ask(SpecFile& file, absl::Status& refusal) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = file.spec;
    *request.mutable_options() = options_;
    if (const auto need = planner_.NeedOf(file.spec); need.has_value()) {
      *request.mutable_options()->mutable_memory_need() = *need;
    }
    request.set_validate_only(true);
    refusal = link_->Call(&v1::JobService::Stub::CreateJob, request).status();
    if (absl::IsUnavailable(refusal) || absl::IsCancelled(refusal)) return refusal;
    spec_loader::AddViolations(file, GetFieldViolations(refusal), {});
    return absl::OkStatus();
  }

  void Tell(const SpecFile& file, const absl::Status& refusal) {
    const bool is_mistake = !file.mistakes.empty();
    if (is_mistake || wrong_ == 0) {
      exit_code_ = is_mistake ? link::kUsage : link::ExitCodeOf(refusal);
    }
    if (++wrong_ > kRefusalsTold) return;
    context_.err << spec_loader::RenderMistakes(file, context_.terminal.color);
    if (is_mistake) return;
    context_.err << file.name << ":" << file.first_line + 1 << ": " << refusal.message() << "\n";
  }

  const Context& context_;
  const SubmitFlags& flags_;
  MemoryPlanner planner_;
  std::unique_ptr<link::ServerLink> link_;
  v1::SubmitOptions options_;
  int64_t wrong_ = 0;
  link::ExitCode exit_code_ = link::kOk;
};

}  // namespace

Result SubmitMany(const Context& context, const SubmitFlags& flags,
                  const std::vector<SpecText>& texts) {
  if (!flags.from.empty()) {
    return absl::InvalidArgumentError("--from starts one job from a checkpoint; submit it alone");
  }
  if (flags.dry_run) return Checker(context, flags).Run(texts);
  // If a flag cannot be read, that is one error, and not one for each document.
  SpecFile probe;
  probe.is_readable = false;
  TY_RETURN_IF_ERROR(ApplyChanges(flags.spec, probe).status());
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(v1::SubmitOptions options, SubmitOptionsOf(context, *link, flags));
  return Submitter(context, *link, flags, texts, std::move(options)).Run();
}

}  // namespace trainyard::commands
