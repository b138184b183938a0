# What `cmake --install build/release --component NAME` installs: client, server, worker or worker-cuda. Programs that
# people start go into bin, and those that the programs start by themselves into libexec/trainyard, where
# common/base/program_paths.cc looks for them.
include(GNUInstallDirs)
set(helpers libexec/trainyard)

install(TARGETS trainyard RUNTIME DESTINATION bin COMPONENT client)
install(TARGETS trainyard-fetch RUNTIME DESTINATION ${helpers} COMPONENT client)
install(TARGETS trainyard-server RUNTIME DESTINATION bin COMPONENT server)
install(TARGETS trainyard-worker RUNTIME DESTINATION bin COMPONENT worker)
set(worker_helpers trainyard-supervisor trainyard-trainer trainyard-program trainyard-enter)
if(TARGET trainyard-stack)
  list(APPEND worker_helpers trainyard-stack)
endif()
install(TARGETS ${worker_helpers} RUNTIME DESTINATION ${helpers} COMPONENT worker)
set(shipped trainyard trainyard-fetch trainyard-server trainyard-worker ${worker_helpers})
# Only the preset `cuda` has kernels for all GPUs that it is shipped for.
if(TRAINYARD_CUDA STREQUAL "ON")
  install(TARGETS trainyard-trainer-cuda RUNTIME DESTINATION ${helpers} COMPONENT worker-cuda)
  list(APPEND shipped trainyard-trainer-cuda)
endif()

# Pages and completions are what the programs say of themselves.
set(words ${PROJECT_BINARY_DIR}/words)
file(MAKE_DIRECTORY ${words})
add_custom_command(
  OUTPUT ${words}/made
  COMMAND ${PROJECT_SOURCE_DIR}/scripts/man_pages.py ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${words}/man
  COMMAND trainyard completion bash > ${words}/trainyard
  COMMAND trainyard completion zsh > ${words}/_trainyard
  COMMAND trainyard completion fish > ${words}/trainyard.fish
  COMMAND ${CMAKE_COMMAND} -E touch ${words}/made
  DEPENDS trainyard trainyard-server trainyard-worker ${PROJECT_SOURCE_DIR}/scripts/man_pages.py
  COMMENT "manual pages and completions" VERBATIM)
add_custom_target(words ALL DEPENDS ${words}/made)
# All that is installed.
add_custom_target(shipped DEPENDS ${shipped} words)

install(DIRECTORY ${words}/man/ DESTINATION share/man/man1 COMPONENT client FILES_MATCHING PATTERN "*.1")
install(FILES ${words}/trainyard DESTINATION share/bash-completion/completions COMPONENT client)
install(FILES ${words}/_trainyard DESTINATION share/zsh/vendor-completions COMPONENT client)
install(FILES ${words}/trainyard.fish DESTINATION share/fish/vendor_completions.d COMPONENT client)
install(DIRECTORY docs/ DESTINATION share/doc/trainyard COMPONENT client FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
install(FILES README.md CHANGELOG.md DESTINATION share/doc/trainyard COMPONENT client)
install(DIRECTORY jobs/ DESTINATION share/doc/trainyard/examples COMPONENT client
        FILES_MATCHING PATTERN "*.yaml" PATTERN "*.json")
foreach(daemon server worker)
  install(FILES ${words}/man/trainyard-${daemon}.8 DESTINATION share/man/man8 COMPONENT ${daemon})
  install(FILES deploy/tmpfiles/trainyard-${daemon}.conf DESTINATION lib/tmpfiles.d COMPONENT ${daemon})
  set(units_${daemon} deploy/systemd/trainyard-${daemon}.service)
endforeach()
install(FILES deploy/sysusers/trainyard-server.conf DESTINATION lib/sysusers.d COMPONENT server)
list(APPEND units_server deploy/systemd/trainyard-server.socket deploy/systemd/trainyard-backup.service deploy/systemd/trainyard-backup.timer
     deploy/systemd/trainyard-continuous-backup.service)
list(APPEND units_worker deploy/systemd/trainyard-jobs.service)

# The units name the folder of the programs, which is known only now. Files that an administrator has changed stay.
foreach(daemon server worker)
  install(FILES ${units_${daemon}} DESTINATION lib/systemd/system COMPONENT ${daemon})
  foreach(unit ${units_${daemon}})
    get_filename_component(unit ${unit} NAME)
    install(CODE "
      set(path \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/${unit}\")
      file(READ \"\${path}\" text)
      string(REPLACE \"/usr/bin/trainyard\" \"\${CMAKE_INSTALL_PREFIX}/bin/trainyard\" text \"\${text}\")
      file(WRITE \"\${path}\" \"\${text}\")" COMPONENT ${daemon})
  endforeach()
  install(CODE "
    set(folder \"\${CMAKE_INSTALL_PREFIX}/etc/trainyard\")
    if(CMAKE_INSTALL_PREFIX MATCHES \"^/usr(/local)?$\")
      set(folder /etc/trainyard)
    endif()
    if(NOT EXISTS \"\$ENV{DESTDIR}\${folder}/${daemon}.yaml\")
      file(INSTALL DESTINATION \"\${folder}\" TYPE FILE FILES \"${PROJECT_SOURCE_DIR}/deploy/config/${daemon}.yaml\")
    endif()" COMPONENT ${daemon})
endforeach()
