// Converts between the messages and the records of rights.
#include "server/rpc/access_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/duration.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/spec/interval.h"
#include "server/rpc/answers.h"
#include "server/rpc/convert.h"
#include "server/rpc/convert_access.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

void CheckUserName(absl::string_view field, absl::string_view name, RequestCheck& check) {
  if (IsUserName(name)) return;
  check.Add(field, absl::StrCat("'", name.substr(0, 64),
                                "' is no user name; expected 1 to 64 letters, digits, '.', '_', "
                                "'-' and '@'"));
}

// Streams were admitted by rules that have changed since, so they must be admitted again.
absl::Status RightsChanged() {
  return absl::UnavailableError("rights have changed; open the stream again");
}

}  // namespace

AccessServiceImpl::AccessServiceImpl(Services& services) : services_(services) {}

grpc::ServerUnaryReactor* AccessServiceImpl::WhoAmI(const access::Caller& caller,
                                                    grpc::CallbackServerContext* context,
                                                    const v1::WhoAmIRequest*,
                                                    v1::WhoAmIResponse* response) {
  response->set_user(caller.user);
  response->set_role(ToProto(caller.role));
  response->set_role_source(std::string(access::RoleSourceText(caller.role_source)));
  response->set_real_user(caller.real_user);
  response->set_method(caller.token.empty() ? "socket" : "token");
  if (!caller.token.empty()) {
    response->set_token(caller.token);
    *response->mutable_token_expire_time() = ToTimestamp(caller.token_end_us);
  }
  response->set_address(caller.address);
  response->set_server_version(services_.version);
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AccessServiceImpl::ListUsers(const access::Caller&,
                                                       grpc::CallbackServerContext* context,
                                                       const v1::ListUsersRequest*,
                                                       v1::ListUsersResponse* response) {
  for (const access::UserRecord& user : services_.directory.users()) {
    *response->add_users() = ToProto(user);
  }
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AccessServiceImpl::SetUser(const access::Caller& caller,
                                                     grpc::CallbackServerContext* context,
                                                     const v1::SetUserRequest* request,
                                                     v1::User* response) {
  RequestCheck check;
  CheckUserName("name", request->name(), check);
  access::UserRecord user{request->name(), FromProto(request->role(), check), caller.user,
                          services_.runtime.Now().wall_us};
  if (!check.ok()) return Refused(context, check);
  return FinishAfter(context, changes_, [this, user = std::move(user), response]() -> absl::Status {
    TY_RETURN_IF_ERROR(services_.access_store.PutUser(user));
    services_.directory.SetUser(user);
    services_.streams.EndOfUsers(UserActor(user.name), RightsChanged());
    *response = ToProto(user);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AccessServiceImpl::DeleteUser(const access::Caller&,
                                                        grpc::CallbackServerContext* context,
                                                        const v1::DeleteUserRequest* request,
                                                        v1::DeleteUserResponse*) {
  RequestCheck check;
  CheckUserName("name", request->name(), check);
  if (!check.ok()) return Refused(context, check);
  return FinishAfter(context, changes_, [this, name = request->name()]() -> absl::Status {
    TY_RETURN_IF_ERROR(services_.access_store.DeleteUser(name));
    services_.directory.DeleteUser(name);
    services_.streams.EndOfUsers(UserActor(name), RightsChanged());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AccessServiceImpl::ListProjects(const access::Caller& caller,
                                                          grpc::CallbackServerContext* context,
                                                          const v1::ListProjectsRequest*,
                                                          v1::ListProjectsResponse* response) {
  for (const access::ProjectRecord& project : services_.directory.projects()) {
    if (!services_.directory.MaySubmitTo(caller, project.name)) continue;
    *response->add_projects() = ToProto(project);
  }
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AccessServiceImpl::SetProject(const access::Caller&,
                                                        grpc::CallbackServerContext* context,
                                                        const v1::SetProjectRequest* request,
                                                        v1::Project* response) {
  RequestCheck check;
  const v1::Project& wanted = request->project();
  check.Name("project.name", wanted.name());
  check.MaxCount("project.members", wanted.members_size(), kMembersMax);
  access::ProjectRecord project{wanted.name(), wanted.is_private(), {}};
  for (int i = 0; i < wanted.members_size() && i < kMembersMax; ++i) {
    CheckUserName(absl::StrCat("project.members[", i, "]"), wanted.members(i), check);
    project.members.insert(wanted.members(i));
  }
  if (!check.ok()) return Refused(context, check);
  return FinishAfter(context, changes_,
                     [this, project = std::move(project), response]() -> absl::Status {
                       TY_RETURN_IF_ERROR(services_.access_store.PutProject(project));
                       services_.directory.SetProject(project);
                       services_.streams.EndOfUsers("", RightsChanged());
                       *response = ToProto(project);
                       return absl::OkStatus();
                     });
}

grpc::ServerUnaryReactor* AccessServiceImpl::DeleteProject(const access::Caller&,
                                                           grpc::CallbackServerContext* context,
                                                           const v1::DeleteProjectRequest* request,
                                                           v1::DeleteProjectResponse*) {
  RequestCheck check;
  check.Name("name", request->name());
  if (!check.ok()) return Refused(context, check);
  return FinishAfter(context, changes_, [this, name = request->name()]() -> absl::Status {
    TY_RETURN_IF_ERROR(services_.access_store.DeleteProject(name));
    services_.directory.DeleteProject(name);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AccessServiceImpl::ListAuditEntries(
    const access::Caller&, grpc::CallbackServerContext* context,
    const v1::ListAuditEntriesRequest* request, v1::ListAuditEntriesResponse* response) {
  RequestCheck check;
  access::AuditFilter filter;
  filter.user = request->user();
  filter.resource = request->resource();
  filter.only_refused = request->only_refused();
  if (request->has_max_age()) {
    filter.after_us = services_.runtime.Now().wall_us -
                      absl::ToInt64Microseconds(spec::FromProto(request->max_age()));
  }
  const int page_size =
      check.PageSize("page_size", request->page_size(), kAuditPageDefault, kAuditPageMax);
  filter.limit = page_size;
  const int64_t before = check.PageToken("page_token", request->page_token());
  if (before > 0) filter.before_sequence = before;
  if (!check.ok()) return Refused(context, check);
  return FinishAfter(
      context, services_.executor, [this, filter, page_size, response]() -> absl::Status {
        // Whoever asks sees what was done before.
        services_.audit.Flush();
        TY_ASSIGN_OR_RETURN(const auto entries, services_.access_store.ListAudit(filter));
        for (const auto& entry : entries) *response->add_entries() = ToProto(entry);
        if (response->entries_size() == page_size) {
          response->set_next_page_token(absl::StrCat(entries.back().sequence));
        }
        return absl::OkStatus();
      });
}

}  // namespace trainyard::rpc
