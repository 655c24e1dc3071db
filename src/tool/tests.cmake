# SPDX-License-Identifier: MIT
# Tests of the command, of the path shim and of the sysfs-like tree. Included by tests/CMakeLists.txt.
get_filename_component(anyrdma_src ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)

# These two take the sources they need rather than the core: they stand for programs of their own.
add_executable(sysfs_test ${anyrdma_src}/sysfs/sysfs_test.c ${anyrdma_src}/sysfs/sysfs.c ${anyrdma_src}/host/rundir.c
  ${anyrdma_src}/base/env.c ${anyrdma_src}/base/log.c ${anyrdma_src}/base/rmtree.c)
target_include_directories(sysfs_test PRIVATE ${anyrdma_src})
target_link_libraries(sysfs_test PRIVATE cmocka)
add_test(NAME sysfs.sysfs COMMAND sysfs_test)

find_package(Threads REQUIRED)
add_executable(path_test ${anyrdma_src}/shim/path_test.c ${anyrdma_src}/sysfs/sysfs.c ${anyrdma_src}/host/rundir.c
  ${anyrdma_src}/base/env.c ${anyrdma_src}/base/log.c ${anyrdma_src}/base/rmtree.c)
target_include_directories(path_test PRIVATE ${anyrdma_src})
target_link_libraries(path_test PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
if(ANYRDMA_SANITIZE)
  # started again under the shim, where a sanitizer would not come first
  target_compile_options(path_test PRIVATE -fno-sanitize=all)
  target_link_options(path_test PRIVATE -fno-sanitize=all)
endif()
add_test(NAME shim.path COMMAND path_test $<TARGET_FILE:anyrdma_path>)

add_test(NAME clients.tool COMMAND ${anyrdma_src}/../tests/clients/tool.sh $<TARGET_FILE:anyrdma>
  $<TARGET_FILE:forbid>)
set_tests_properties(sysfs.sysfs shim.path PROPERTIES LABELS unit TIMEOUT 60)
set_tests_properties(clients.tool PROPERTIES LABELS clients TIMEOUT 60)
if(ANYRDMA_SANITIZE)
  set_tests_properties(clients.tool PROPERTIES ENVIRONMENT "SANITIZED=1;ASAN_OPTIONS=detect_leaks=0")
endif()
