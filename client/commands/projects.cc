// projects lists, sets and removes the rules of projects.
#include <algorithm>
#include <ostream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

using output::Table;

struct SetProjectOptions {
  std::string name;
  std::string visibility;
  std::vector<std::string> add;
  std::vector<std::string> remove;
};

struct DeleteProjectsOptions {
  std::vector<std::string> names;
};

std::string VisibilityText(const v1::Project& project) {
  return project.is_private() ? "private" : "lab";
}

Result ListProjects(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(
      const v1::ListProjectsResponse response,
      link->Call(&v1::AccessService::Stub::ListProjects, v1::ListProjectsRequest()));
  if (PrintResources(context, response.projects())) return link::kOk;
  if (response.projects().empty()) {
    context.Say(
        "no project has rules, so everybody sees all jobs; `trainyard projects set NAME "
        "--visibility private --add USER` makes one private");
    return link::kOk;
  }
  Table table({{"PROJECT"}, {"VISIBILITY"}, {"MEMBERS"}});
  for (const v1::Project& project : response.projects()) {
    table.AddRow({project.name(), VisibilityText(project), absl::StrJoin(project.members(), " ")});
  }
  context.out << table.Render();
  return link::kOk;
}

absl::StatusOr<v1::Project> FindProject(link::ServerLink& link, const std::string& name) {
  TY_ASSIGN_OR_RETURN(const v1::ListProjectsResponse response,
                      link.Call(&v1::AccessService::Stub::ListProjects, v1::ListProjectsRequest()));
  for (const v1::Project& project : response.projects()) {
    if (project.name() == name) return project;
  }
  v1::Project none;
  none.set_name(name);
  return none;
}

Result SetProject(const Context& context, const SetProjectOptions& options) {
  if (options.visibility.empty() && options.add.empty() && options.remove.empty()) {
    return absl::InvalidArgumentError("give at least one of --visibility, --add and --remove");
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::SetProjectRequest request;
  v1::Project& project = *request.mutable_project();
  TY_ASSIGN_OR_RETURN(project, FindProject(*link, options.name));
  if (!options.visibility.empty()) project.set_is_private(options.visibility == "private");
  std::set<std::string> members(project.members().begin(), project.members().end());
  members.insert(options.add.begin(), options.add.end());
  for (const std::string& user : options.remove) members.erase(user);
  project.clear_members();
  for (const std::string& member : members) project.add_members(member);
  TY_ASSIGN_OR_RETURN(const v1::Project set,
                      link->Call(&v1::AccessService::Stub::SetProject, request));
  const std::string who =
      set.is_private()
          ? absl::StrCat("private; its members are: ",
                         set.members().empty() ? "nobody" : absl::StrJoin(set.members(), ", "))
          : std::string("seen by the whole lab");
  context.Say(absl::StrCat("project '", set.name(), "' is ", who));
  PrintOne(context, set, set.name());
  return link::kOk;
}

Result DeleteProjects(const Context& context, const DeleteProjectsOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  for (const std::string& name : options.names) {
    v1::DeleteProjectRequest request;
    request.set_name(name);
    TY_RETURN_IF_ERROR(link->Call(&v1::AccessService::Stub::DeleteProject, request).status());
    context.Say(absl::StrCat(
        "project '", name, "' has no rules any more; its jobs are kept, and everybody sees them"));
  }
  return link::kOk;
}

}  // namespace

void AddProjects(VerbTable& verbs) {
  verbs.Group("projects", "Who sees and submits the jobs of a project");
  verbs.Add("projects ls", "List the projects with rules", "", ListProjects);
  verbs.Add<SetProjectOptions>(
      "projects set", "Set visibility and members; what is not given stays",
      "vision --visibility private --add anna --add bert",
      [](client::Flags& flags, SetProjectOptions& options) {
        flags.Word("PROJECT", options.name, "Name of the project").Required();
        flags
            .Value("--visibility", options.visibility,
                   "lab: everybody sees its jobs; private: only members do")
            .OneOf({"lab", "private"});
        flags.Repeated("--add", options.add, "A user who becomes a member");
        flags.Repeated("--remove", options.remove, "A user who is a member no longer");
      },
      SetProject);
  verbs.Add<DeleteProjectsOptions>(
      "projects rm", "Remove the rules of projects; jobs stay", "vision",
      [](client::Flags& flags, DeleteProjectsOptions& options) {
        flags.Words("PROJECT", options.names, "Names of projects").Required();
      },
      DeleteProjects);
}

}  // namespace trainyard::commands
