"""Works with a daemon through the client that was generated from its OpenAPI document."""

import os

from muxtap_client import AuthenticatedClient, Client
from muxtap_client.api.daemon import get_status, health
from muxtap_client.api.panes import list_panes, read_pane, send_input
from muxtap_client.api.servers import list_servers
from muxtap_client.api.waits import begin_wait, get_wait, list_waits
from muxtap_client.models import Error, InputRequest, ReadFormat, WaitOutcome, WaitRequest

url, socket = os.environ["CLIENT_URL"], os.environ["CLIENT_SOCKET"]
client = AuthenticatedClient(base_url=url, token=os.environ["CLIENT_TOKEN"])

assert health.sync(client=Client(base_url=url)).ok
assert get_status.sync_detailed(client=Client(base_url=url)).status_code == 401

panes = list_panes.sync(client=client, socket=socket).panes
assert [pane.session for pane in panes] == ["main"], panes
pane = panes[0].id
assert [server.state for server in list_servers.sync(client=client).servers] == ["connected"]
assert list_panes.sync(client=client).panes[0].id == pane, "the only server that is followed"
assert list_waits.sync(client=client).waits == []

sent = send_input.sync(pane, client=client, socket=socket, body=InputRequest(text="echo $((40 + 2))", submit=True))
assert sent.submit.echoed and sent.submit.changed, sent
waited = begin_wait.sync(client=client, socket=socket, body=WaitRequest(panes=[pane], patterns=["^42$"]))
assert waited.outcome == WaitOutcome.MATCHED and waited.predicates[0].line == "42", waited
assert get_wait.sync(waited.id, client=client).id == waited.id
read = read_pane.sync(pane, client=client, socket=socket, since=sent.cursor, format_=ReadFormat.TEXT)
assert "\n42\n" in read.text, read

wrong = begin_wait.sync(client=client, socket=socket, body=WaitRequest(panes=["%999"], patterns=["x"]))
assert isinstance(wrong, Error) and wrong.code == "NOT_FOUND", wrong
print("the generated Python client lists, types, waits and reads")
