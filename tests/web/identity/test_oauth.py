from tests.support.front import Front


def test_a_client_exchanges_its_secret_for_a_token_that_the_service_accepts(front: Front) -> None:
    organization = front.identity.organization()
    created = front.identity.deployment(organization.id)
    answer = front.post(
        "/oauth/token",
        data={
            "grant_type": "client_credentials",
            "client_id": str(created.deployment.client_id),
            "client_secret": created.credential.secret.value,
        },
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    token = answer.get_json()["access_token"]
    assert front.get("/files", f"Bearer {token}").json == {"files": [], "nextCursor": None}
