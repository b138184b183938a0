// Tests of requests as JSON.
#include "server/http/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::http {
namespace {

using ::testing::HasSubstr;

TEST(Json, NothingIsAnEmptyMessage) {
  v1::ListJobsRequest request;
  EXPECT_TRUE(ParseJson(" \n", request).ok());
  EXPECT_TRUE(ParseJson("{}", request).ok());
}

TEST(Json, ASpecMayHaveTheFormOfPeopleAndThatOfProtobuf) {
  v1::CreateJobRequest people;
  ASSERT_TRUE(ParseJson(R"({"spec": {"name": "a", "program": {"command": ["x"],
                            "params": {"lr": 0.5, "words": ["a"]}}, "devices": 2},
                            "requestId": "r"})",
                        people)
                  .ok());
  EXPECT_EQ(people.request_id(), "r") << "names in the case of protobuf's JSON";
  EXPECT_EQ(people.spec().program().params().at("lr"), "0.5");
  EXPECT_EQ(people.spec().devices().count(), 2);
  people.mutable_spec()->mutable_program()->clear_params();  // in protobuf's form they are texts
  v1::CreateJobRequest wire;
  const auto text = ToJson(people);
  ASSERT_TRUE(text.ok());
  ASSERT_TRUE(ParseJson(*text, wire).ok()) << *text;
  EXPECT_EQ(wire.SerializeAsString().size(), people.SerializeAsString().size());
}

TEST(Json, MistakesAreToldWithTheirPlace) {
  const auto message = [](const std::string& json) {
    v1::CreateJobRequest request;
    return std::string(ParseJson(json, request).message());
  };
  EXPECT_THAT(message("{\"spec\": {\n\"name\": }}"), HasSubstr("line 2, column 9"));
  EXPECT_THAT(message("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(message(R"({"sepc": {}})"), HasSubstr("did you mean 'spec'?"));
  EXPECT_THAT(message(R"({"spec": {"trian": {}}})"), HasSubstr("trian"));
  EXPECT_THAT(message(R"({"options": {"array_size": "many"}})"), HasSubstr("array_size"));
  EXPECT_THAT(message("{\"spec\": [[}"), HasSubstr("no JSON"));
  EXPECT_THAT(message(std::string(100000, '[')), HasSubstr("nested more than"));
  EXPECT_THAT(message(R"({"spec": )" + std::string(1000, '[') + std::string(1000, ']') + "}"),
              HasSubstr("nested more than"));
  EXPECT_THAT(message("{\"request_id\": \"\xff\"}"), HasSubstr("UTF-8"));
}

TEST(Json, WhatIsLargerThanAnyRequestIsRefused) {
  const auto message = [](const std::string& json) {
    v1::CreateJobRequest request;
    return std::string(ParseJson(json, request).message());
  };
  std::string values = R"({"spec": [1)";
  for (int i = 0; i < kJsonValuesMax; ++i) values += ",1";
  EXPECT_THAT(message(values + "]}"), HasSubstr("values"));
  std::string names = R"({"spec": {"a0": 1)";
  for (size_t i = 1; i <= kJsonMembersMax; ++i) names += absl::StrCat(", \"a", i, "\": 1");
  EXPECT_THAT(message(names + "}}"), HasSubstr("names"));
  EXPECT_THAT(message(absl::StrCat("{\"", std::string(kJsonKeyBytesMax + 1, 'a'), "\": 1}")),
              HasSubstr("a name of more than"));
}

}  // namespace
}  // namespace trainyard::http
