// Makes the inputs that the tests of turns post: a job, and the worker lab-1 with one CPU device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/core/yard/inputs.h"

namespace trainyard::testing {

inline core::SubmitJob SubmitJob(const std::string& name, int32_t devices = 1) {
  auto submission = std::make_shared<core::Submission>();
  submission->uid = "uid-" + name;
  submission->name = name;
  submission->user = "anna";
  submission->demand.count = devices;
  return {submission, "", "", "user:anna"};
}

inline core::RegisterWorker RegisterWorker(const std::string& session) {
  core::RegisterWorker input;
  input.worker = "lab-1";
  input.uid = "u";
  input.session = session;
  core::DeviceRecord device;
  device.name = "cpu-0";
  device.type = "cpu";
  input.devices = {device};
  return input;
}

}  // namespace trainyard::testing
