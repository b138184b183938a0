// Lets a daemon read its flags from a YAML file, whose keys are the names of the flags:
//   state_dir: /var/lib/trainyard/server
//   shared: true
//   listen: [unix:/run/trainyard/trainyard.sock, tls:0.0.0.0:7070]
#pragma once

namespace CLI {
class App;
}

namespace trainyard {

// Adds the flag --config FILE. What the command line says wins over the file. A key that is no
// flag, or a value that cannot be one, ends the parsing with an error that names its place.
void AddFlagFile(CLI::App& app);

}  // namespace trainyard
