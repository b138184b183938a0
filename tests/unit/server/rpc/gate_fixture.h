// Gives tests a server with jobs/1, callers of all roles, and what its audit log has.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/dynamic_message.h"
#include "server/rpc/gate.h"
#include "tests/testing/raw_call.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace trainyard::rpc {

// Returns the reason with which the gate refuses a call, or an empty text if it admits it.
inline std::string RefusalOf(const grpc::Status& status) {
  static const auto* reasons =
      new std::set<std::string>{"ROLE_TOO_LOW", "NOT_OWNER",    "NOT_A_WORKER",  "NOT_A_USER",
                                "NOT_ADMIN",    "NOT_A_MEMBER", "UNKNOWN_CALLER"};
  const absl::Status error = FromGrpcStatus(status);
  const std::string reason = ErrorReason(error);
  if (reasons->contains(reason)) return reason;
  // A job that the caller may not see is as if it were not there.
  return absl::IsNotFound(error) && absl::StrContains(error.message(), "jobs/1") ? "HIDDEN" : "";
}

class GateTest : public RpcTest {
 protected:
  // Makes jobs/1, of anna.
  void MakeJob(const std::string& project = "") {
    v1::CreateJobRequest request;
    *request.mutable_spec() = Spec("first");
    if (!project.empty()) request.mutable_spec()->set_project(project);
    v1::Job job;
    const grpc::Status status = jobs_->CreateJob(Context("anna").get(), request, &job);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(job.name(), "jobs/1");
  }

  // Makes a call with a request whose names are those of jobs/1, and returns its status. A stream
  // is left at its first message.
  static grpc::Status CallBy(const std::shared_ptr<grpc::Channel>& channel,
                             const access::Rule& rule) {
    const std::vector<std::string> parts = absl::StrSplit(rule.rpc, '/');
    const google::protobuf::MethodDescriptor* method =
        google::protobuf::DescriptorPool::generated_pool()
            ->FindServiceByName(absl::StrCat("trainyard.v1.", parts[0]))
            ->FindMethodByName(parts[1]);
    google::protobuf::DynamicMessageFactory factory;
    const std::unique_ptr<google::protobuf::Message> request(
        factory.GetPrototype(method->input_type())->New());
    NameJob(*request);
    return testing::RawCall(channel, absl::StrCat("/trainyard.v1.", rule.rpc),
                            request->SerializeAsString());
  }

  std::shared_ptr<grpc::Channel> ChannelOf(const std::string& user, access::Role role) {
    return Connect(User(user, role));
  }

  // Returns the last entries of the audit log as "CALL about ABOUT: REASON", newest first.
  std::vector<std::string> Audit(int count) {
    v1::ListAuditEntriesRequest request;
    request.set_page_size(count);
    v1::ListAuditEntriesResponse audit;
    EXPECT_TRUE(access_->ListAuditEntries(Context("").get(), request, &audit).ok());
    std::vector<std::string> texts;
    for (const v1::AuditEntry& entry : audit.entries()) {
      texts.push_back(absl::StrCat(entry.rpc(), " about ", entry.resource(), ": ",
                                   entry.allowed() ? "allowed" : entry.reason()));
    }
    return texts;
  }

 private:
  static void NameJob(google::protobuf::Message& request) {
    for (const char* name : {"name", "parent", "left", "right"}) {
      const google::protobuf::FieldDescriptor* field =
          request.GetDescriptor()->FindFieldByName(name);
      if (field != nullptr && field->type() == google::protobuf::FieldDescriptor::TYPE_STRING) {
        request.GetReflection()->SetString(&request, field, "jobs/1");
      }
    }
    const google::protobuf::FieldDescriptor* names =
        request.GetDescriptor()->FindFieldByName("names");
    if (names != nullptr) request.GetReflection()->AddString(&request, names, "jobs/1");
  }
};

}  // namespace trainyard::rpc
