/* SPDX-FileCopyrightText: The Ullage Authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The process of a pod's sandbox: holds the pod's namespaces open and, with a
 * shared process namespace, reaps the orphans of the other containers.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void stop(int signal_number) {
    (void)signal_number;
    _exit(0);
}

static void reap(int signal_number) {
    (void)signal_number;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(void) {
    struct sigaction on_stop = {.sa_handler = stop};
    struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    if (sigaction(SIGINT, &on_stop, NULL) < 0 || sigaction(SIGTERM, &on_stop, NULL) < 0 ||
        sigaction(SIGCHLD, &on_child, NULL) < 0) {
        return EXIT_FAILURE;
    }
    for (;;) {
        pause();
    }
}
