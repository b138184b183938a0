// note and tag write down what people find out about a job after its submission.
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct NoteOptions {
  std::string job;
  std::vector<std::string> text;
  bool remove = false;
};

struct TagOptions {
  std::string jobs;
  std::vector<std::string> add;
  std::vector<std::string> remove;
};

std::string AllTagsText(const v1::Job& job) {
  std::vector<std::string> tags(job.resolved_spec().tags().begin(),
                                job.resolved_spec().tags().end());
  tags.insert(tags.end(), job.added_tags().begin(), job.added_tags().end());
  return absl::StrJoin(tags, " ");
}

absl::StatusOr<v1::Job> FetchAnnotated(link::ServerLink& link, const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  return link.Call(&v1::JobService::Stub::GetJob, request);
}

Result Note(const Context& context, const NoteOptions& options) {
  const std::string text = absl::StrJoin(options.text, " ");
  if (options.remove && !text.empty()) {
    return absl::InvalidArgumentError("--rm removes the note; give a text or --rm");
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::string name, ResolveOne(*link, options.job));
  if (text.empty() && !options.remove) {
    TY_ASSIGN_OR_RETURN(const v1::Job job, FetchAnnotated(*link, name));
    if (PrintOne(context, job, name)) return link::kOk;
    if (job.note().empty()) {
      context.Say(absl::StrCat(name, " has no note"));
    } else {
      context.out << job.note() << "\n" << std::flush;
    }
    return link::kOk;
  }
  v1::AnnotateJobRequest request;
  request.set_name(name);
  request.set_note(text);
  TY_ASSIGN_OR_RETURN(const v1::Job job, link->Call(&v1::JobService::Stub::AnnotateJob, request));
  if (!PrintOne(context, job, name)) {
    context.Say(absl::StrCat("the note of ", name, text.empty() ? " is removed" : " is kept"));
  }
  return link::kOk;
}

Result Tag(const Context& context, const TagOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ResolveSelectors(*link, {options.jobs}));
  std::vector<v1::Job> jobs;
  for (const std::string& name : names) {
    if (options.add.empty() && options.remove.empty()) {
      TY_ASSIGN_OR_RETURN(v1::Job job, FetchAnnotated(*link, name));
      jobs.push_back(std::move(job));
      continue;
    }
    v1::AnnotateJobRequest request;
    request.set_name(name);
    for (const std::string& tag : options.add) {
      request.add_add_tags(std::string(absl::StripPrefix(tag, "+")));
    }
    for (const std::string& tag : options.remove) request.add_remove_tags(tag);
    TY_ASSIGN_OR_RETURN(v1::Job job, link->Call(&v1::JobService::Stub::AnnotateJob, request));
    jobs.push_back(std::move(job));
  }
  if (PrintResources(context, jobs)) return link::kOk;
  for (const v1::Job& job : jobs) {
    const std::string tags = AllTagsText(job);
    context.out << job.name() << ": " << (tags.empty() ? "no tags" : tags) << "\n";
  }
  context.out << std::flush;
  return link::kOk;
}

}  // namespace

void AddAnnotate(VerbTable& verbs) {
  verbs.Add<NoteOptions>(
      "note", "Write a note on a job, or show it",
      "12 'diverges with the new warm-up; see 15'\n"
      "  trainyard note 12                   shows it\n"
      "  trainyard note 12 --rm              removes it",
      [](client::Flags& flags, NoteOptions& options) {
        flags.Word("JOB", options.job, kSelectorHelp).Required();
        flags.Words("TEXT", options.text, "The new note; without it, the note is shown");
        flags.Switch("--rm", options.remove, "Remove the note");
      },
      Note);
  verbs.Add<TagOptions>(
      "tag", "Give jobs tags afterwards, or show their tags",
      "12 good paper\n"
      "  trainyard tag 10-20 +good --remove bad\n"
      "  trainyard ls --tag good             lists them",
      [](client::Flags& flags, TagOptions& options) {
        flags.Word("JOB", options.jobs, kSelectorHelp).Required();
        flags.Words("TAG", options.add, "Tags to add, with or without a +").ShownAs("[+]TAG ...");
        flags.Repeated("--remove", options.remove,
                       "A tag to remove; may be repeated. Tags of the spec stay");
      },
      Tag);
}

}  // namespace trainyard::commands
