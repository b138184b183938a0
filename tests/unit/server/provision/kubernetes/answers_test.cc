// Tests what is made of answers. Their forms are those of Kubernetes 1.20 to 1.31.
#include "server/provision/kubernetes/answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace trainyard::provision::kubernetes {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int64_t kNoon = 1'767'268'800'000'000;  // 2026-01-01T12:00:00Z
constexpr int64_t kSecond = 1'000'000;

json PodWith(const json& status, const std::string& node = "node-1") {
  json pod = {
      {"metadata",
       {{"name", "ty-s1-gpu-1"},
        {"uid", "0fe2"},
        {"creationTimestamp", "2026-01-01T12:00:00Z"},
        {"labels", {{"trainyard.dev/pilot", "ty-s1-gpu-1"}, {"trainyard.dev/nodes", "1"}}}}},
      {"spec", {{"containers", {{{"name", "worker"}}}}, {"activeDeadlineSeconds", 60}}},
      {"status", status}};
  if (!node.empty()) pod["spec"]["nodeName"] = node;
  return pod;
}

json ListOf(const json& item, const char* kind = "PodList") {
  return {{"kind", kind}, {"metadata", json::object()}, {"items", json::array({item})}};
}

Found Read(const json& pod) {
  const auto page = ParsePods(ListOf(pod).dump());
  EXPECT_TRUE(page.ok()) << page.status();
  return page.ok() && page->found.size() == 1 ? page->found[0] : Found();
}

json Worker(const json& state) {
  return {{"phase", "Running"},
          {"startTime", "2026-01-01T12:00:01Z"},
          {"containerStatuses", {{{"name", "worker"}, {"state", state}}}}};
}
json Ended(const json& state) {
  json status = Worker(state);
  status["phase"] = "Failed";
  return status;
}

struct Case {
  json pod;
  ForeignState state;
  std::string reason;
};

TEST(Answers, APodIsAsFarAsItsStatusSays) {
  const std::string no_node = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.";
  const std::vector<Case> cases = {
      {PodWith({{"phase", "Pending"}}, ""), ForeignState::kWaiting, ""},
      {PodWith({{"phase", "Pending"},
                {"conditions",
                 {{{"type", "PodScheduled"},
                   {"status", "False"},
                   {"reason", "Unschedulable"},
                   {"message", no_node}}}}},
               ""),
       ForeignState::kWaiting, "Unschedulable: " + no_node},
      {PodWith({{"phase", "Pending"},
                {"conditions",
                 {{{"type", "PodScheduled"}, {"status", "False"}, {"reason", "SchedulingGated"}}}}},
               ""),
       ForeignState::kWaiting, "SchedulingGated"},
      {PodWith(Worker({{"waiting", {{"reason", "ContainerCreating"}}}})), ForeignState::kActive,
       "ContainerCreating"},
      {PodWith(Worker({{"waiting",
                        {{"reason", "ImagePullBackOff"},
                         {"message", "Back-off pulling image \"nowhere/x\""}}}})),
       ForeignState::kActive, "ImagePullBackOff: Back-off pulling image \"nowhere/x\""},
      {PodWith(Worker({{"running", {{"startedAt", "2026-01-01T12:00:02Z"}}}})),
       ForeignState::kActive, ""},
      {PodWith({{"phase", "Running"},
                {"conditions",
                 {{{"type", "Ready"}, {"status", "False"}, {"reason", "NodeNotReady"}}}}}),
       ForeignState::kActive, "NotReady: its node does not answer"},
      {PodWith({{"phase", "Unknown"}}), ForeignState::kActive,
       "NotReady: its node does not answer"},
      {PodWith({{"phase", "Succeeded"}}), ForeignState::kCompleted, ""},
      {PodWith({{"phase", "Failed"},
                {"reason", "Evicted"},
                {"message", "The node was low on resource: memory. "}}),
       ForeignState::kFailed, "Evicted: The node was low on resource: memory."},
      {PodWith({{"phase", "Failed"},
                {"reason", "DeadlineExceeded"},
                {"message", "Pod was active on the node longer than the specified deadline"}}),
       ForeignState::kTimedOut,
       "DeadlineExceeded: Pod was active on the node longer than the specified deadline"},
      {PodWith({{"phase", "Failed"}, {"reason", "OutOfcpu"}, {"message", "Pod Node didn't have"}}),
       ForeignState::kFailed, "OutOfcpu: Pod Node didn't have"},
      {PodWith(Ended({{"terminated", {{"reason", "OOMKilled"}, {"exitCode", 137}}}})),
       ForeignState::kFailed, "OOMKilled: it needed more memory than its limit (exit code 137)"},
      {PodWith(
           Ended({{"terminated", {{"reason", "Error"}, {"exitCode", 1}, {"message", "no\n"}}}})),
       ForeignState::kFailed, "Error, exit code 1: no"},
      {PodWith({{"phase", "Failed"}}), ForeignState::kFailed, ""},
  };
  for (const Case& each : cases) {
    const Found found = Read(each.pod);
    EXPECT_EQ(found.state, each.state) << each.pod.dump();
    EXPECT_EQ(found.reason, each.reason);
    EXPECT_EQ(found.create_us, kNoon);
  }
}

TEST(Answers, TimesAreRead) {
  const Found found = Read(PodWith(Worker({{"running", json::object()}})));
  EXPECT_EQ(found.start_us, kNoon + kSecond);
  EXPECT_EQ(found.expire_us, kNoon + 61 * kSecond);
  EXPECT_TRUE(found.has_node);
  const Found ended = Read(
      PodWith(Ended({{"terminated", {{"exitCode", 1}, {"finishedAt", "2026-01-01T12:00:09Z"}}}})));
  EXPECT_EQ(ended.end_us, kNoon + 9 * kSecond);
}

TEST(Answers, ADeletedPodLeaves) {
  json pod = PodWith(Worker({{"running", json::object()}}));
  pod["metadata"]["deletionTimestamp"] = "2026-01-01T12:05:00Z";
  Found found = Read(pod);
  EXPECT_EQ(found.state, ForeignState::kLeaving);
  EXPECT_EQ(found.reason, "somebody deletes it");
  EXPECT_EQ(found.delete_us, kNoon + 300 * kSecond);
  pod["status"]["conditions"] = {{{"type", "DisruptionTarget"},
                                  {"status", "True"},
                                  {"reason", "EvictionByEvictionAPI"},
                                  {"message", "Eviction API: evicting"}}};
  found = Read(pod);
  EXPECT_EQ(found.reason, "EvictionByEvictionAPI: Eviction API: evicting");
  // Whatever is deleted, an end is an end.
  pod["status"]["phase"] = "Failed";
  EXPECT_EQ(Read(pod).state, ForeignState::kFailed);
}

TEST(Answers, AWorkerMayEndBesideOthers) {
  json pod =
      PodWith({{"phase", "Running"},
               {"containerStatuses",
                {{{"name", "logs"}, {"state", {{"running", json::object()}}}},
                 {{"name", "worker"},
                  {"state", {{"terminated", {{"exitCode", 0}, {"reason", "Completed"}}}}}}}}});
  pod["spec"]["containers"].push_back({{"name", "logs"}});
  const Found found = Read(pod);
  EXPECT_EQ(found.state, ForeignState::kActive);
  EXPECT_TRUE(found.worker_ended);
  EXPECT_EQ(found.reason, "Completed, exit code 0");
}

TEST(Answers, PodsOfAJobAndWhatCannotBeginAreTold) {
  json pod = PodWith(Worker({{"waiting", {{"reason", "CreateContainerConfigError"}}}}));
  pod["metadata"]["ownerReferences"] = {{{"kind", "Job"}, {"name", "x"}}};
  const Found found = Read(pod);
  EXPECT_TRUE(found.is_of_job);
  EXPECT_TRUE(found.cannot_begin);
}

TEST(Answers, AJobIsAsFarAsItsConditionsSay) {
  const auto read = [](const json& spec, const json& status) {
    const json job = {
        {"metadata",
         {{"name", "ty-s1-gpu-1"},
          {"uid", "0fe2"},
          {"creationTimestamp", "2026-01-01T12:00:00Z"},
          {"labels",
           {{"trainyard.dev/pilot", "ty-s1-gpu-1"}, {"kueue.x-k8s.io/queue-name", "team"}}}}},
        {"spec", spec},
        {"status", status}};
    const auto page = ParseJobs(ListOf(job, "JobList").dump());
    EXPECT_TRUE(page.ok()) << page.status();
    return page->found[0];
  };
  const json none = json::object();
  Found found = read({{"suspend", true}}, {{"startTime", "2026-01-01T12:00:01Z"}});
  EXPECT_EQ(found.state, ForeignState::kWaiting);
  EXPECT_EQ(found.reason, "waits in the queue team");
  EXPECT_EQ(found.start_us, 0);
  found = read({{"suspend", false}, {"activeDeadlineSeconds", 60}},
               {{"startTime", "2026-01-01T12:00:01Z"}, {"active", 1}});
  EXPECT_EQ(found.state, ForeignState::kActive);
  EXPECT_EQ(found.expire_us, kNoon + 61 * kSecond);
  const auto failed = [](const char* reason) -> json {
    return {{"conditions",
             {{{"type", "Failed"}, {"status", "True"}, {"reason", reason}, {"message", "m"}}}}};
  };
  EXPECT_EQ(read(none, failed("BackoffLimitExceeded")).state, ForeignState::kFailed);
  EXPECT_EQ(read(none, failed("BackoffLimitExceeded")).reason, "BackoffLimitExceeded: m");
  EXPECT_EQ(read(none, failed("DeadlineExceeded")).state, ForeignState::kTimedOut);
  found = read(none, {{"conditions", {{{"type", "Complete"}, {"status", "True"}}}},
                      {"completionTime", "2026-01-01T12:00:03Z"}});
  EXPECT_EQ(found.state, ForeignState::kCompleted);
  EXPECT_EQ(found.end_us, kNoon + 3 * kSecond);
}

TEST(Answers, WhatHasAnotherFormIsNoList) {
  json nameless = PodWith({{"phase", "Running"}});
  nameless["metadata"].erase("name");
  json unlabelled = PodWith({{"phase", "Running"}});
  unlabelled["metadata"]["labels"].erase("trainyard.dev/pilot");
  for (const std::string& text :
       {std::string(""), std::string("<html>busy</html>"), std::string("[]"), std::string("null"),
        std::string(R"({"kind": "Status", "status": "Failure"})"),
        std::string(R"({"kind": "PodList", "metadata": {}})"),
        std::string(R"({"kind": "PodList", "items": []})"),
        std::string(R"({"kind": "PodList", "metadata": {}, "items": 3})"),
        std::string(R"({"kind": "PodList", "metadata": {}, "items": [3]})"),
        ListOf(nameless).dump(), ListOf(unlabelled).dump(),
        ListOf(PodWith({})).dump().substr(0, 90)}) {
    EXPECT_TRUE(absl::IsDataLoss(ParsePods(text).status())) << text;
  }
  EXPECT_TRUE(absl::IsDataLoss(ParseJobs(ListOf(PodWith({})).dump()).status()));
  // Go writes an empty list as null.
  const auto empty = ParsePods(R"({"kind": "PodList", "metadata": {}, "items": null})");
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->found.empty());
}

// Parts of a status may be missing or of other types; none of that ends the server.
TEST(Answers, AnyTypeMayStandAnywhere) {
  for (const json& odd : {json(3), json("x"), json(nullptr), json::array({1}),
                          json::array({nullptr}), json{{"a", 1}}}) {
    for (const char* field : {"phase", "reason", "message", "conditions", "startTime",
                              "containerStatuses", "initContainerStatuses"}) {
      const Found found = Read(PodWith({{field, odd}}));
      EXPECT_FALSE(HasEnded(found.state)) << field << " " << odd.dump();
    }
    json pod = PodWith({{"phase", "Failed"}});
    pod["metadata"]["ownerReferences"] = odd;
    pod["spec"]["activeDeadlineSeconds"] = odd;
    pod["metadata"]["labels"]["trainyard.dev/nodes"] = odd;
    EXPECT_EQ(Read(pod).nodes, 1);
  }
}

TEST(Answers, APageNamesTheNextOne) {
  json list = ListOf(PodWith({}));
  list["metadata"]["continue"] = "abc";
  EXPECT_EQ(ParsePods(list.dump())->next, "abc");
}

TEST(Answers, AStatusSaysWhy) {
  curl::Response response;
  response.status = 403;
  response.body =
      R"({"kind": "Status", "reason": "Forbidden", "message": "exceeded quota: q, used: pods=1"})";
  EXPECT_EQ(MessageOf(response), "exceeded quota: q, used: pods=1");
  EXPECT_EQ(ReasonOf(response), "Forbidden");
  response.body = "<html>";
  EXPECT_EQ(MessageOf(response), "the API server answers with the status 403");
  EXPECT_EQ(ReasonOf(response), "");
}

TEST(Answers, AnObjectSaysWhoseItIs) {
  const auto made = ParseMade(R"({"metadata": {"uid": "u", "labels": {
      "trainyard.dev/server": "s", "trainyard.dev/provider": "p", "trainyard.dev/pilot": "x"}}})");
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->uid, "u");
  EXPECT_EQ(absl::StrCat(made->server, made->provider, made->pilot), "spx");
  EXPECT_TRUE(absl::IsDataLoss(ParseMade("{}").status()));
}

}  // namespace
}  // namespace trainyard::provision::kubernetes
