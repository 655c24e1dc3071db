# SPDX-License-Identifier: MIT
# anyrdma_chaos(TARGET): what base/chaos.h says, for a target and whoever links it; nothing unless ANYRDMA_CHAOS.
set(CHAOS_CALLS
  pthread_mutex_lock pthread_mutex_trylock pthread_mutex_unlock pthread_cond_broadcast
  poll ppoll epoll_wait read write eventfd_read eventfd_write timerfd_settime
  send sendto sendmsg sendmmsg recv recvfrom recvmsg recvmmsg writev
  process_vm_readv process_vm_writev syscall)

list(JOIN CHAOS_CALLS ",--wrap=" CHAOS_WRAP)
list(TRANSFORM CHAOS_CALLS REPLACE "(.+)" "X(\\1)" OUTPUT_VARIABLE CHAOS_X)
list(JOIN CHAOS_X " " CHAOS_X)

if(ANYRDMA_CHAOS)
  add_compile_options(-include ${CMAKE_CURRENT_SOURCE_DIR}/base/chaos.h)
  add_library(anyrdma_chaos OBJECT base/chaos.c)
  target_compile_options(anyrdma_chaos PRIVATE "-DCHAOS_CALLS(X)=${CHAOS_X}" -fexceptions)
endif()

function(anyrdma_chaos target)
  if(ANYRDMA_CHAOS)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:anyrdma_chaos>)
    target_link_options(${target} PUBLIC -Wl,--wrap=${CHAOS_WRAP})
  endif()
endfunction()
