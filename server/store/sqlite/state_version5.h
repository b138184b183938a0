// Defines version 5 of trainyard.db, whose migration needs more than SQL.
#pragma once

#include "server/store/sqlite/migrations.h"

namespace trainyard::store {

// In this version a submission is stored as its two specs and one message of what was given beside
// them, and the progress of a job as the message in which it was reported. The server reads them as
// it starts, and a new field in either of them does not concern the tables. Most columns of a new
// job have defaults. A checkpoint may outlive the job that wrote it.
Migration Version5();

}  // namespace trainyard::store
